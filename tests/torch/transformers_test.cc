// Hugging Face's transformers reads what `dtrun export` writes, and computes the same.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/torch/torch_jobs.h"

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;

// A Python with PyTorch that has transformers as well; without one the test is skipped.
const std::string& python_with_transformers() {
  const std::string& python = python_with_torch();
  Process probe({python, "-c", "import transformers"});
  if (probe.wait(kLong) != 0) {
    std::printf("skipped: %s has no transformers (pip install transformers, DTRUN_TEST_PYTHON)\n",
                python.c_str());
    std::exit(77);
  }
  return python;
}

// Text that has something to learn: each token follows from the two before it, but for some noise.
std::string tokens(int count, unsigned seed) {
  std::string bytes;
  unsigned a = 1, b = 2, noise = seed;
  for (int i = 0; i < count; ++i) {
    noise = noise * 1664525 + 1013904223;
    const unsigned next = (a * 3 + b * 5 + (noise >> 24 < 32 ? noise >> 16 : 0)) % 50;
    bytes += static_cast<char>(next);
    bytes += '\0';
    a = b, b = next;
  }
  return bytes;
}

}  // namespace

TEST_CASE("transformers finds the same loss in an exported GPT-2") {
  const std::string& python = python_with_transformers();
  const Folder folder;
  std::filesystem::create_directories(folder / "data");
  write_text(folder / "data/train.bin", tokens(20000, 1));
  write_text(folder / "data/val.bin", tokens(3001, 2));
  const Json config{
      {"output_dir", (folder / "out").string()},
      {"model", {{"type", "gpt2"}, {"n_layer", 3}, {"n_head", 4}, {"n_embd", 48}, {"n_positions", 40}}},
      {"data",
       {{"type", "tokens"},
        {"path", (folder / "data").string()},
        {"vocab_size", 50},
        {"sequence_length", 30}}},
      {"train",
       {{"max_steps", 150}, {"global_batch_size", 16}, {"optim", "adamw"}, {"learning_rate", 0.003}}}};
  write_text(folder / "job.json", config.dump());
  Process trained({kDtrun, "--standalone", "--nproc_per_node", "2", (folder / "job.json").string()});
  REQUIRE_MESSAGE(trained.wait(kLong) == 0, trained.err());
  Process exported({kDtrun, "export", (folder / "out").string(), (folder / "hub").string()});
  REQUIRE_MESSAGE(exported.wait(kLong) == 0, exported.err());
  Process theirs({python, kScripts + "gpt2_loss.py", (folder / "hub").string(),
                  (folder / "data/val.bin").string(), "30"},
                 {"OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1"});
  REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());
  const std::string metrics = read_text(folder / "out/metrics.jsonl");
  const std::size_t at = metrics.rfind("{\"event\":\"eval\"");
  REQUIRE(at != std::string::npos);
  const double ours = Json::parse(metrics.substr(at, metrics.find('\n', at) - at))["loss"];
  CHECK(std::abs(std::stod(theirs.out().substr(theirs.out().find("loss ") + 5)) - ours) < 1e-5);
  CHECK(ours < 3);  // of log(50), 3.9
}
