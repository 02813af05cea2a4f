// The promise for the other models, on other data: the same bytes for any division of the work, any failures,
// and any recomputation. And gpt2 learns to write.
#include <doctest/doctest.h>
#include <signal.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/training.h"
#include "worker/config/bf16.h"

namespace dtrun::models_test {

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;

struct Model {
  std::string name;
  Json model, data;
  std::vector<std::string> overrides;  // none of which may change a byte
  bool bf16 = false;
  int local_replicas = 1;
  int batch_norm_group = 1;
};

// Text's rows, images in groups, and norms for which microbatches wait; and the others, of which each
// operation has its own tests.
enum class Chosen { kFew, kOthers };

// Sentences that are always the same.
std::string sentences() {
  const std::array words{"worker", "agent", "node", "rank", "step", "bucket", "gradient", "checkpoint"};
  const std::array verbs{"waits for", "sends", "loses", "finds", "adds", "reads"};
  std::mt19937 random(1);
  std::string text;
  while (text.size() < 60000)
    text += std::string("the ") + words[random() % words.size()] + " " + verbs[random() % verbs.size()] +
            " the " + words[random() % words.size()] + ".\n";
  return text;
}

std::vector<Model> models(const Folder& folder, std::optional<Chosen> chosen = {}) {
  write_text(folder / "sentences.txt", sentences());
  const Json text{{"type", "text"},
                  {"path", (folder / "sentences.txt").string()},
                  {"sequence_length", 24},
                  {"test_fraction", 0.1}};
  const Json synthetic{{"type", "synthetic"}, {"samples", 600}, {"shape", {1, 8, 8}}};
  const Json colour{{"type", "synthetic"}, {"samples", 600}, {"shape", {3, 32, 32}}};
  std::vector<Model> all{
      {"gpt2",
       {{"type", "gpt2"},
        {"n_layer", 2},
        {"n_head", 2},
        {"n_embd", 32},
        {"n_positions", 24},
        {"dropout", 0.1}},
       text,
       {"model.gradient_checkpointing=true"}},
      {"mlp", {{"type", "mlp"}, {"hidden_sizes", {256, 64}}, {"dropout", 0.1}}, synthetic, {}}};
  if (dtrun::worker::processor_has_bf16()) {
    for (const Model& fp32 : std::vector(all)) {
      all.push_back(fp32);
      all.back().name += " in bf16", all.back().bf16 = true;
    }
  } else {
    MESSAGE("without bf16: " << dtrun::worker::bf16_refusal());
  }
  all.push_back({"convnet", {{"type", "convnet"}, {"channels", {24, 20}}}, colour, {}});
  const Json norm{{"BatchNorm2d", Json::object()}};
  all.push_back({"layers with batch norms",
                 {{"type", "layers"},
                  {"layers",
                   {conv3x3(8, 1),
                    norm,
                    {{"ReLU", Json::object()}, {"name", "first"}},
                    conv3x3(8, 1),
                    norm,
                    {{"add", "first"}},
                    "ReLU",
                    conv3x3(16, 2),
                    norm,
                    "ReLU",
                    "Flatten",
                    {{"Linear", {{"out_features", 96}}}},
                    "BatchNorm1d",
                    "Linear"}}},
                 synthetic,
                 {}});
  all.push_back({"resnet of bottlenecks",
                 {{"type", "resnet"},
                  {"layer_type", "bottleneck"},
                  {"depths", {1, 1}},
                  {"embedding_size", 16},
                  {"stem", "cifar"}},
                 colour,
                 {}});
  // Of its parameters one's name is the end of another's. Its microbatches wait for each other.
  all.push_back({"resnet",
                 {{"type", "resnet"}, {"depths", {1, 1}}, {"embedding_size", 20}, {"stem", "cifar"}},
                 colour,
                 {}});
  all.back().batch_norm_group = 0;
  all.push_back(all[0]);
  all.back().name += " in local replicas", all.back().local_replicas = 4;
  const std::set<std::string> few{"gpt2", "convnet", "resnet"};
  if (chosen)
    std::erase_if(all, [&](const Model& one) { return few.contains(one.name) != (chosen == Chosen::kFew); });
  return all;
}

// Its job with this output directory, in a file beside it.
std::vector<std::string> job(const Model& model, const std::vector<std::string>& options,
                             const std::filesystem::path& output, long steps,
                             const std::vector<std::string>& overrides = {}) {
  Json config{{"output_dir", output.string()},
              {"model", model.model},
              {"data", model.data},
              {"train",
               {{"max_steps", steps},
                {"global_batch_size", 24},
                {"micro_batch_size", 3},
                {"optim", "adamw"},
                {"learning_rate", 0.003},
                {"lr_scheduler_type", "constant"},
                {"weight_decay", 0.1},
                {"max_grad_norm", 1.0},
                {"bf16", model.bf16},
                {"batch_norm_group", model.batch_norm_group},
                {"eval_steps", 0},
                {"save_steps", 10},
                {"logging_steps", 1}}}};
  if (model.local_replicas > 1)
    config["train"].update(Json{{"local_replicas", model.local_replicas},
                                {"sync_every", 5},
                                {"outer_learning_rate", 0.8},
                                {"outer_momentum", 0.5}});
  const std::string file = output.string() + ".json";
  write_text(file, config.dump());
  std::vector<std::string> argv{kDtrun};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(file);
  argv.insert(argv.end(), overrides.begin(), overrides.end());
  return argv;
}

void divide(Chosen chosen) {
  const Folder texts;
  for (const Model& one : models(texts, chosen)) {
    CAPTURE(one.name);
    const Folder folder;
    const Ended alone = run(job(one, standalone(1), folder / "1", 12));
    REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
    for (const auto& division : {std::pair{1, 2}, {2, 1}, {3, 1}, {4, 1}}) {
      const int workers = division.first, lanes = division.second;
      CAPTURE(workers);
      CAPTURE(lanes);
      const auto output = folder / (std::to_string(workers) + "x" + std::to_string(lanes));
      const Ended ended = run(job(one, standalone(workers, lanes), output, 12, one.overrides));
      REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
      CHECK(model(output) == model(folder / "1"));
    }
  }
}

void disturb(Chosen chosen) {
  constexpr long kForever = 1'000'000'000, kMore = 6;
  const Folder texts;
  for (const Model& one : models(texts, chosen)) {
    CAPTURE(one.name);
    const Folder folder;
    const auto output = folder / "out";
    Process disturbed(resting(job(one, joined(standalone(2), {"--max_restarts", "1"}), output, kForever)));
    REQUIRE_MESSAGE(trains(output, 4), disturbed.err());
    kill(workers_of(disturbed, 2)[0], SIGKILL);
    // What a replica had was the killed worker's alone; on a quick machine there is a checkpoint by then.
    const auto goes_on = [&] {
      const std::string said = disturbed.err();
      return one.local_replicas > 1
                 ? contains(said, "resumed from step ") || contains(said, "it begins again")
                 : contains(said, "going on at step ") && contains(said, "going on with 2 workers");
    };
    REQUIRE_MESSAGE(eventually(goes_on), disturbed.err());
    CHECK(trains(output, steps_done(output) + 4));
    disturbed.signal(SIGTERM);
    CHECK(disturbed.end().exit_code == 143);
    const auto [stopped, bytes] = newest_checkpoint(output);
    const Ended resumed = run(job(one, standalone(3), output, stopped + kMore, one.overrides));
    CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
    CHECK(contains(resumed.err, "resumed from step " + std::to_string(stopped)));

    const Ended calm = run(job(one, standalone(1, 2), folder / "calm", stopped + kMore,
                               {"train.save_steps=" + std::to_string(stopped)}));
    REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", stopped);
    CHECK(bytes == read_text(folder / "calm" / "checkpoints" / name / "model.safetensors"));
    CHECK(model(output) == model(folder / "calm"));
  }
}

}  // namespace

TEST_CASE("the same bytes for any number of workers and lanes, and with what is computed again") {
  divide(Chosen::kFew);
}

TEST_CASE("a kill, and a stop with a resume by another number of workers, change no byte") {
  disturb(Chosen::kFew);
}

TEST_SUITE("long") {
  TEST_CASE("the same bytes for any division, of the other models") { divide(Chosen::kOthers); }

  TEST_CASE("a kill and a stop change no byte, of the other models") { disturb(Chosen::kOthers); }
}

TEST_CASE(
    "bf16 learns as fp32 does, goes on from its checkpoint, and is refused where it cannot be computed") {
  const Folder folder;
  for (const Model& one : models(folder)) {
    if (!one.bf16) continue;
    CAPTURE(one.name);
    const auto output = folder / one.name;
    const auto loss = [&](const std::filesystem::path& of) {
      std::istringstream metrics(read_text(of / "metrics.jsonl"));
      double found = NAN;
      for (std::string line; std::getline(metrics, line);)
        if (const Json event = Json::parse(line); event["event"] == "eval")
          found = event["loss"].get<double>();
      return found;
    };
    const Ended half = run(job(one, standalone(2), output, 40));
    REQUIRE_MESSAGE(half.exit_code == 0, half.err);
    const Ended fp32 = run(job(one, standalone(2), output.string() + "_fp32", 40, {"train.bf16=false"}));
    REQUIRE_MESSAGE(fp32.exit_code == 0, fp32.err);
    CHECK(loss(output) == doctest::Approx(loss(output.string() + "_fp32")).epsilon(0.02));
    CHECK(model(output) != model(output.string() + "_fp32"));
    const Ended resumed = run(job(one, standalone(1), output, 50, {"train.bf16=false"}));
    CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
    CHECK(resumed.err.find("/train/bf16: false here, true ") != std::string::npos);
  }
  // A set that the processor has can be left out.
  std::vector<std::string> words =
      job(models(folder)[1], standalone(1), folder / "refused", 4, {"train.bf16=true"});
  words.insert(words.begin(), {"/usr/bin/env", "DTRUN_CPU=avx2"});
  const Ended refused = run(words);
  CHECK(refused.exit_code == 78);
  CHECK(refused.err.find("/train/bf16: true needs a processor with ") != std::string::npos);
  CHECK(refused.err.find("leave it out or set it to false, for fp32") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "refused/model.safetensors"));
}

TEST_CASE("gpt2 learns from text, says perplexity, and is exported; other models are not") {
  const Folder folder;
  const std::vector<Model> all = models(folder);
  const Ended ended = run(job(all[0], standalone(2), folder / "gpt2", 60, {"model.dropout=0"}));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(ended.err.find(", perplexity ") != std::string::npos);
  std::vector<Json> lines;
  std::istringstream metrics(read_text(folder / "gpt2/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);)
    if (line.find("\"event\":\"s") == std::string::npos) lines.push_back(Json::parse(line));  // start, save
  // Of 256 bytes: nothing is known at first.
  CHECK(lines.front()["loss"].get<double>() == doctest::Approx(std::log(256)).epsilon(0.02));
  CHECK(lines.front()["tokens_per_second"].get<double>() ==
        doctest::Approx(24 * lines.front()["samples_per_second"].get<double>()));
  const Json& eval = lines[lines.size() - 2];
  REQUIRE(eval["event"] == "eval");
  CHECK(eval["loss"].get<double>() < 4);
  CHECK(eval["perplexity"].get<double>() == doctest::Approx(std::exp(eval["loss"].get<double>())));

  const Ended exported = run({kDtrun, "export", (folder / "gpt2").string(), (folder / "hub").string()});
  CHECK_MESSAGE(exported.exit_code == 0, exported.err);
  CHECK(read_text(folder / "hub/model.safetensors") == model(folder / "gpt2"));
  const Json config = Json::parse(read_text(folder / "hub/config.json"));
  CHECK(config["model_type"] == "gpt2");
  CHECK(config["vocab_size"] == 256);
  CHECK(config["n_layer"] == 2);

  // Another job begins with the exported model, on any rank.
  const Ended again = run(job(all[0], standalone(2), folder / "again", 1,
                              {"model.dropout=0", "train.learning_rate=1e-12", "train.weight_decay=0",
                               "train.init_from=" + (folder / "hub").string()}));
  REQUIRE_MESSAGE(again.exit_code == 0, again.err);
  const std::string after = read_text(folder / "again/metrics.jsonl");
  const Json same =
      Json::parse(after.substr(after.find("{\"event\":\"eval\""),
                               after.find("\n{\"event\":\"end\"") - after.find("{\"event\":\"eval\"")));
  CHECK(same["loss"].get<double>() == doctest::Approx(eval["loss"].get<double>()).epsilon(1e-6));
  // It can be a teacher, under transformers' own config, too.
  const Ended taught = run(job(all[0], standalone(2), folder / "taught", 2,
                               {"model.n_layer=1", "train.distill_from=" + (folder / "hub").string()}));
  CHECK_MESSAGE(taught.exit_code == 0, taught.err);
  const Ended wider = run(job(all[0], standalone(1), folder / "wider", 1,
                              {"model.n_embd=64", "train.init_from=" + (folder / "hub").string()}));
  CHECK(wider.exit_code == 78);
  CHECK_MESSAGE(wider.err.find("/train/init_from: " + (folder / "hub/config.json").string() +
                               ": its n_embd is 32, and that of the model to train 64") != std::string::npos,
                wider.err);
  const Ended nowhere =
      run(job(all[0], standalone(1), folder / "nowhere", 1, {"train.init_from=/nonexistent"}));
  CHECK(nowhere.exit_code == 66);
  CHECK(nowhere.err.find("/nonexistent") != std::string::npos);

  // The text of a seed is always the same; the text behind a prompt is not.
  const auto sample = [&](const std::vector<std::string>& words) {
    std::vector<std::string> argv{kDtrun, "sample", (folder / "gpt2").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    return run(argv);
  };
  const Ended text = sample({"--prompt", "The ", "--max_new_tokens", "60", "--seed", "3"});
  CHECK_MESSAGE(text.exit_code == 0, text.err);
  CHECK(text.out.starts_with("The "));
  CHECK(text.out.size() == 4 + 60 + 1);
  CHECK(sample({"--prompt", "The ", "--max_new_tokens", "60", "--seed", "3"}).out == text.out);
  CHECK(sample({"--prompt", "The ", "--max_new_tokens", "60", "--seed", "4"}).out != text.out);
  const Ended likeliest = sample({"--prompt", "The ", "--max_new_tokens", "3", "--temperature", "0"});
  CHECK(sample({"--prompt", "The ", "--max_new_tokens", "3", "--top_k", "1", "--seed", "9"}).out ==
        likeliest.out);
  CHECK(sample({"--top_p", "1.5"}).err.find("--top_p=1.5: expected a number from 0 to 1") !=
        std::string::npos);

  const Ended mlp = run(job(all[1], standalone(1), folder / "mlp", 2));
  REQUIRE_MESSAGE(mlp.exit_code == 0, mlp.err);
  const Ended refused = run({kDtrun, "export", (folder / "mlp").string(), (folder / "none").string()});
  CHECK(refused.exit_code == 78);
  CHECK(refused.err.find("transformers has no model like \"mlp\"; docs/model.md tells") != std::string::npos);
  const auto cannot = [&](const std::vector<std::string>& options, int exit_code, const std::string& why) {
    std::vector<std::string> argv{kDtrun, "export", (folder / "mlp").string(), (folder / "none").string()};
    argv.insert(argv.end(), options.begin(), options.end());
    const Ended ended = run(argv);
    CHECK(ended.exit_code == exit_code);
    CHECK_MESSAGE(ended.err.find(why) != std::string::npos, ended.err);
  };
  cannot({"--quantize", "q4_0"}, 78, "llama.cpp has no model like \"mlp\"");
  cannot({"--format", "hf", "--quantize", "q8_0"}, 64, "--quantize=q8_0: only the format gguf has it");
  cannot({"--quantize", "int4"}, 64, "--quantize=int4: expected q8_0 or q4_0");
  CHECK(run({kDtrun, "sample", (folder / "mlp").string()}).err.find("a \"mlp\" writes no text") !=
        std::string::npos);
  const Ended missing = run({kDtrun, "export", (folder / "nothing").string(), (folder / "none").string()});
  CHECK(missing.exit_code == 66);
  CHECK(missing.err.find("holds no model: name the output_dir of a job") != std::string::npos);
  CHECK(run({kDtrun, "export", (folder / "gpt2").string()}).exit_code == 64);
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

TEST_CASE("a GPT-2 that learned to count counts on beyond its n_positions, in a tokenizer's numbers") {
  const Folder folder;
  std::filesystem::create_directories(folder / "data");
  const auto counted = [](int tokens) {
    std::string bytes;
    for (int i = 0; i < tokens; ++i) bytes += {static_cast<char>(i % 50), '\0'};
    return bytes;
  };
  write_text(folder / "data/train.bin", counted(20000));
  write_text(folder / "data/val.bin", counted(3000));
  const Model counter{
      "gpt2",
      {{"type", "gpt2"}, {"n_layer", 2}, {"n_head", 2}, {"n_embd", 32}, {"n_positions", 32}},
      {{"type", "tokens"}, {"path", (folder / "data").string()}, {"vocab_size", 50}, {"sequence_length", 32}},
      {}};
  const Ended trained = run(job(counter, standalone(2), folder / "out", 80));
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const auto sample = [&](const std::string& prompt) {
    return run({kDtrun, "sample", (folder / "out").string(), "--prompt", prompt, "--max_new_tokens", "90",
                "--temperature", "0"});
  };
  std::string wanted;
  for (int i = 3; i < 3 + 3 + 90; ++i) wanted += std::to_string(i % 50) + " ";
  CHECK(sample("3 4 5").out == wanted + "\n");
  CHECK(sample("3 x").err.find("--prompt: \"x\" is no token") != std::string::npos);
}

}  // namespace dtrun::models_test
