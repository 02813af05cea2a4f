// dtrun profile, on each kind of lane.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/training.h"

namespace dtrun::profile_test {

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;

const Json kSynthetic{{"type", "synthetic"}, {"samples", 600}, {"shape", {1, 28, 28}}};
const Json kText{{"type", "text"},
                 {"path", DTRUN_SOURCE_DIR "/docs"},
                 {"files", "*.md"},
                 {"sequence_length", 16},
                 {"test_fraction", 0.01}};

std::string job(const Folder& folder, const Json& model, const Json& data, int micro_batch_size) {
  const std::string file = (folder / "job.json").string();
  write_text(file, Json{{"output_dir", (folder / "out").string()},
                        {"device", "cpu"},
                        {"model", model},
                        {"data", data},
                        {"train", {{"global_batch_size", 24}, {"micro_batch_size", micro_batch_size}}}}
                       .dump());
  return file;
}

// The names of the rows of 3 profiled steps, after what must hold of every profile was checked.
std::set<std::string> rows(const std::string& config, int lanes) {
  const Ended ended =
      run({kDtrun, "profile", config, "--json", "--steps", "3", "--lanes", std::to_string(lanes)});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const Json profile = Json::parse(ended.out);
  CHECK(profile["steps"] == 3);
  CHECK(profile["lanes"] == lanes);
  CHECK(profile["samples_per_step"] == 24);
  CHECK(profile["ceiling"]["flops_per_second"].get<double>() > 1e8);
  CHECK(profile["ceiling"]["bytes_per_second"].get<double>() > 1e7);
  std::set<std::string> names;
  double shares = profile["gap_seconds"].get<double>() / profile["timed_step_seconds"].get<double>();
  CHECK(shares >= 0);
  for (const Json& row : profile["rows"]) {
    shares += row["share"].get<double>();
    if (row["flops"] > 0) CHECK(row["of_ceiling"].get<double>() < 50);
    if (row["part"] != "") names.insert(row["what"]);
  }
  CHECK(shares == doctest::Approx(1));
  return names;
}

}  // namespace

TEST_CASE("every operation of each model is told of, and the parts are not more than a step") {
  const Folder folder;
  using Names = std::set<std::string>;
  const Json mlp{{"type", "mlp"}, {"hidden_sizes", {32, 32}}};
  for (const int lanes : {1, 2})
    CHECK(rows(job(folder, mlp, kSynthetic, 4), lanes) ==
          Names{"Linear 32 -> 10", "Linear 32 -> 32", "Linear 32 -> 32 + ReLU", "Linear 784 -> 32",
                "Linear 784 -> 32 + ReLU", "Loss of 10 classes", "ReLU 32"});
  const Json gpt2{{"type", "gpt2"}, {"n_layer", 2}, {"n_head", 2}, {"n_embd", 32}, {"n_positions", 16}};
  CHECK(rows(job(folder, gpt2, kText, 4), 1) ==
        Names{"Add + LayerNorm 32", "Attention, 2 heads of 16, 16 tokens", "Embedding 256 x 32",
              "Embedding 256 x 32 + positions", "GELU 128", "LayerNorm 32", "Linear 128 -> 32",
              "Linear 32 -> 128", "Linear 32 -> 256", "Linear 32 -> 32", "Linear 32 -> 96",
              "Loss of 256 classes", "Positions 16 x 32"});
  // Few samples are carried out as rows, more in groups.
  const Json convnet{{"type", "convnet"}};
  for (const int samples : {2, 12})
    CHECK(rows(job(folder, convnet, kSynthetic, samples), 1) ==
          Names{"Conv2d 5x5, 1x28x28 -> 20x24x24", "Conv2d 5x5, 1x28x28 -> 20x24x24 + ReLU",
                "Conv2d 5x5, 20x12x12 -> 20x8x8", "Conv2d 5x5, 20x12x12 -> 20x8x8 + ReLU", "Linear 320 -> 50",
                "Linear 320 -> 50 + ReLU", "Linear 50 -> 10", "Loss of 10 classes", "MaxPool2d 2, 20x24x24",
                "MaxPool2d 2, 20x24x24 and ReLU", "MaxPool2d 2, 20x8x8", "MaxPool2d 2, 20x8x8 and ReLU",
                "ReLU 50"});
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE("the table names each operation, and faults are told as elsewhere") {
  const Folder folder;
  const std::string config = job(folder, {{"type", "mlp"}, {"hidden_sizes", {32, 32}}}, kSynthetic, 4);
  const Ended ended = run({kDtrun, "profile", config, "--steps", "3"});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(ended.out.find("Linear 784 -> 32") != std::string::npos);
  CHECK(ended.out.find("mean, norm and optimizer") != std::string::npos);

  const auto refused = [&](const std::vector<std::string>& words) {
    std::vector<std::string> argv{kDtrun, "profile"};
    argv.insert(argv.end(), words.begin(), words.end());
    return run(argv);
  };
  CHECK(refused({(folder / "none.json").string()}).exit_code == 66);
  CHECK(refused({config, "train.lanes=3"}).exit_code == 78);
  // Nothing is shown to CUDA, if there is any.
  const Ended no_gpu = Process({kDtrun, "profile", config, "device=cuda"}, {"CUDA_VISIBLE_DEVICES="}).end();
  CHECK(no_gpu.exit_code == 78);
  CHECK_MESSAGE(no_gpu.err.find(config + ": /device is \"cuda\", but ") != std::string::npos, no_gpu.err);
  const Ended wider =
      refused({config, "--steps", "1", "model.hidden_sizes=[48]", "train.micro_batch_size=8"});
  CHECK_MESSAGE(wider.exit_code == 0, wider.err);
  CHECK(wider.out.find("Linear 784 -> 48") != std::string::npos);
  CHECK(wider.out.find("microbatches of 8") != std::string::npos);
  CHECK(refused({config, "--lanes", "0"}).exit_code == 64);
  CHECK(refused({}).exit_code == 64);
  write_text(config, "{\"model\": {\"type\": \"mpl\"}}");
  CHECK(refused({config}).exit_code == 78);
}

}  // namespace dtrun::profile_test
