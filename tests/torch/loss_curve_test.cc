// A hundred steps of dtrun's fp32 against PyTorch's fp64: the same initial values, the same batches, no
// dropout. The remaining difference is rounding. That the bound is tight is part of the test: a small error
// in a number of the optimizer or of the schedule breaks it.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/support/small_images.h"
#include "tests/support/worst.h"
#include "tests/torch/torch_jobs.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/core/sampler.h"
#include "worker/data/dataset.h"
#include "worker/model/program.h"

namespace dtrun::loss_curve_test {

using namespace dtrun::test;
namespace worker = dtrun::worker;

namespace {

using Json = nlohmann::json;

constexpr int kSteps = 100;
// The limit for a step's mean loss, which is 0.5 to 5: some of fp32's last bits. Measured: up to 9e-7.
constexpr double kRounding = 2e-6;
// A small error makes more than fifty times that. Measured: from 3e-4 on.
constexpr double kFault = 1e-4;

struct Case {
  std::string name;
  Json model;
  Json train;
};

// Text that is soon learned: each token follows from the one before it, but for some noise.
void write_tokens(const std::filesystem::path& path, int count) {
  std::string bytes;
  unsigned token = 1, noise = 1;
  for (int i = 0; i < count; ++i) {
    noise = noise * 1664525 + 1013904223;
    token = (token * 3 + 7 + (noise >> 24 < 32 ? noise >> 16 : 0)) % 50;
    bytes += static_cast<char>(token);
    bytes += '\0';
  }
  write_text(path, bytes);
}

Json data_of(const Case& one, const std::filesystem::path& folder) {
  if (one.model["type"] == "gpt2") {
    write_tokens(folder / "train.bin", 3000);
    write_tokens(folder / "val.bin", 300);
    return {{"type", "tokens"}, {"path", folder.string()}, {"vocab_size", 50}, {"sequence_length", 12}};
  }
  write_idx(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 301, 1);
  write_idx(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 20, 2);
  return {{"type", "idx"}, {"path", folder.string()}, {"mean", 0.4}, {"std", 0.3}};
}

// The samples of each step, as the sampler has them.
Json batches_of(const worker::TrainConfig& train, std::int64_t samples) {
  const worker::BatchSampler sampler(samples, train.global_batch_size, train.micro_batch_size,
                                     train.num_train_epochs, train.max_steps);
  Json batches = Json::array();
  for (std::int64_t step = 0; step < sampler.total_steps(); ++step) {
    const worker::StepPlan plan = sampler.step(step);
    const worker::EpochOrder order(train.seed, plan.epoch, samples);
    Json batch = Json::array();
    for (std::int64_t i = 0; i < plan.samples; ++i) batch.push_back(order.at(plan.first_sample + i));
    batches.push_back(batch);
  }
  return batches;
}

std::vector<double> losses_of(const std::filesystem::path& metrics) {
  std::vector<double> losses;
  std::istringstream lines(read_text(metrics));
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event["event"] == "train") losses.push_back(event["loss"]);
  }
  return losses;
}

// Small errors, one at a time.
Json variants_of(const Json& train) {
  Json variants{{"exact", Json::object()}};
  const auto scaled = [&](const char* key, double factor) {
    variants[key] = {{key, train[key].get<double>() * factor}};
  };
  variants["warmup_steps"] = {{"warmup_steps", train["warmup_steps"].get<int>() + 1}};
  scaled("learning_rate", 1.001);
  scaled("weight_decay", 1.05);
  scaled("label_smoothing_factor", 1.001);
  if (train.contains("batch_norm_group"))
    variants["batch_norm_group"] = {{"batch_norm_group", train["batch_norm_group"] == 0 ? 2 : 0}};
  if (train["optim"] == "sgd") {
    scaled("momentum", 0.999);
    if (train.contains("decay_weights_only"))
      variants["decay_weights_only"] = {{"decay_weights_only", false}};
    variants["nesterov"] = {{"nesterov", !train["nesterov"].get<bool>()}};
    return variants;
  }
  scaled("adam_beta1", 0.999);
  scaled("adam_beta2", 0.999);
  scaled("adam_epsilon", 1.05);
  return variants;
}

double largest_difference(const std::vector<double>& ours, const std::vector<double>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  double largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) largest = worst_of(largest, std::abs(ours[i] - theirs[i]));
  return largest;
}

// Of batch norms, as the trained model has them.
void compare_running(const std::filesystem::path& output, const worker::Program& program,
                     const Json& theirs) {
  const std::vector<float> trained = worker::load_parameters(output, program);
  std::size_t compared = 0;
  for (const worker::Parameter& parameter : program.parameters) {
    if (!parameter.running) continue;
    CAPTURE(parameter.name);
    const auto expected = theirs.at(parameter.name).get<std::vector<double>>();
    REQUIRE(expected.size() == parameter.size);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(trained[parameter.offset + i] == doctest::Approx(expected[i]).epsilon(1e-4).scale(0.1));
    ++compared;
  }
  CHECK(compared == theirs.size());
}

void compare(const Case& one) {
  CAPTURE(one.name);
  const Folder folder;
  std::filesystem::create_directories(folder / "data");
  Json train{{"max_steps", kSteps},
             {"global_batch_size", 24},
             {"micro_batch_size", 8},
             {"momentum", 0.9},
             {"nesterov", false},
             {"adam_beta1", 0.9},
             {"adam_beta2", 0.95},
             {"adam_epsilon", 1e-4},
             {"weight_decay", 0.1},
             {"max_grad_norm", 1.0},
             {"label_smoothing_factor", 0.1},
             {"lr_scheduler_type", "cosine"},
             {"warmup_steps", 10},
             {"logging_steps", 1},
             {"eval_steps", 0},
             {"save_steps", 0}};
  train.update(one.train);
  if (train["optim"] == "adamw") train.erase("nesterov");
  const Json data = data_of(one, folder / "data");
  Json config{
      {"output_dir", (folder / "out").string()}, {"model", one.model}, {"data", data}, {"train", train}};
  const auto parsed = worker::parse_config(config.dump(), "job.json", {});
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  const worker::JobConfig& job = parsed.value();
  const auto facts = worker::check_dataset(job.data);
  REQUIRE(facts.ok());

  const worker::Program program = worker::make_program(job.model, facts.value().spec);
  std::vector<float> initial(program.size);
  worker::initialize_parameters(program, 7, initial);
  const std::string model = worker::save_model(folder / "initial", program, initial).string();
  config["train"]["init_from"] = model;
  write_text(folder / "job.json", config.dump());
  Process trained({kDtrun, "--standalone", "--nproc_per_node", "2", (folder / "job.json").string()});
  REQUIRE_MESSAGE(trained.wait(kLong) == 0, trained.err());

  if (train["optim"] == "adamw") train["nesterov"] = false;
  write_text(folder / "spec.json", Json{{"model", model},
                                        {"data", data},
                                        {"train", train},
                                        {"batches", batches_of(job.train, facts.value().train)},
                                        {"variants", variants_of(train)}}
                                       .dump());
  Process theirs({python_with_torch(), kScripts + "loss_curve.py", (folder / "spec.json").string()},
                 {"OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1"});
  REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());

  const std::vector<double> ours = losses_of(folder / "out/metrics.jsonl");
  REQUIRE(ours.size() == kSteps);
  CHECK(ours.back() < 0.9 * ours.front());  // it learns
  const Json curves = Json::parse(theirs.out());
  for (const auto& curve : curves.items()) {
    const std::string& variant = curve.key();
    CAPTURE(variant);
    const double difference = largest_difference(ours, curve.value()["losses"].get<std::vector<double>>());
    if (variant == "exact") {
      CHECK(difference < kRounding);
      compare_running(folder / "out", program, curve.value()["running"]);
    } else
      CHECK(difference > kFault);
  }
}

Json adamw(double rate) { return {{"optim", "adamw"}, {"learning_rate", rate}}; }
Json sgd(double rate, bool nesterov) {
  return {{"optim", "sgd"}, {"learning_rate", rate}, {"nesterov", nesterov}, {"weight_decay", 0.001}};
}

}  // namespace

TEST_CASE("the losses of a GPT-2 are PyTorch's" * doctest::test_suite("transformers")) {
  if (const std::string why = why_no_torch_with("transformers"); !why.empty()) return skip(why);
  const Json model{{"type", "gpt2"}, {"n_layer", 2}, {"n_head", 2}, {"n_embd", 16}, {"n_positions", 12}};
  compare({"gpt2, adamw", model, adamw(1e-2)});
  compare({"gpt2, sgd", model, sgd(0.5, false)});
}

TEST_CASE("the losses of a perceptron are PyTorch's") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  compare({"mlp, adamw", {{"type", "mlp"}, {"hidden_sizes", {32, 16}}, {"activation", "gelu"}}, adamw(1e-3)});
  compare({"mlp, sgd", {{"type", "mlp"}, {"hidden_sizes", {32, 16}}}, sgd(0.02, true)});
  Json weights_only = sgd(0.1, false);
  weights_only["decay_weights_only"] = true, weights_only["weight_decay"] = 0.05;
  compare({"mlp, sgd that decays weights only", {{"type", "mlp"}, {"hidden_sizes", {32, 16}}}, weights_only});
}

TEST_CASE("the losses of a convnet are PyTorch's") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  compare({"convnet, adamw", {{"type", "convnet"}}, adamw(1e-3)});
  compare(
      {"convnet, sgd", {{"type", "convnet"}, {"channels", {6, 8, 10}}, {"kernel_size", 3}}, sgd(0.1, false)});
}

TEST_CASE(
    "the losses of images with batch norms, strides and padding are PyTorch's, and running statistics too") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  const Json model{{"type", "layers"},
                   {"layers",
                    {conv3x3(6, 1),
                     "BatchNorm2d",
                     "ReLU",
                     {{"MaxPool2d", {{"kernel_size", 3}, {"stride", 2}, {"padding", 1}}}},
                     conv3x3(8, 2),
                     {{"BatchNorm2d", {{"momentum", 0.2}, {"eps", 0.01}}}},
                     "ReLU",
                     {{"AdaptiveAvgPool2d", {{"output_size", 1}}}},
                     "Flatten",
                     {{"Linear", {{"out_features", 16}}}},
                     "BatchNorm1d",
                     "ReLU",
                     "Linear"}}};
  compare({"batch norms, adamw", model, adamw(2e-3)});
  compare({"batch norms, sgd", model, sgd(0.01, false)});
  // Without the kinks of a ReLU, at which rounding decides.
  const Json gelu{{"GELU", {{"approximate", "tanh"}}}};
  const Json smooth{{"type", "layers"},
                    {"layers",
                     {conv3x3(6, 1),
                      "BatchNorm2d",
                      gelu,
                      conv3x3(8, 2),
                      "BatchNorm2d",
                      gelu,
                      "Flatten",
                      {{"Linear", {{"out_features", 16}}}},
                      "BatchNorm1d",
                      gelu,
                      "Linear"}}};
  for (const int group : {2, 0}) {  // 0: torch.nn.SyncBatchNorm
    Json train = sgd(0.01, false);
    train["micro_batch_size"] = 4, train["batch_norm_group"] = group;
    compare({"batch norms of groups of " + std::to_string(group), smooth, train});
  }
}

}  // namespace dtrun::loss_curve_test
