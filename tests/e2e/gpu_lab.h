// Jobs of the built-in trainer on simulated GPUs: the real dtrun, and the real worker linked with stand-ins
// for CUDA and NCCL (tests/cuda_on_cpu).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"
#include "tests/support/fake_gpus.h"

namespace dtrun::test {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

inline constexpr int kGpus = 8;

struct Model {
  std::string name;
  Json model, data;
  bool bf16 = true;
};

inline std::vector<Model> models() {
  const Json text{{"type", "text"},
                  {"path", DTRUN_SOURCE_DIR "/docs"},
                  {"files", "*.md"},
                  {"sequence_length", 16},
                  {"test_fraction", 0.01}};
  const Json images{{"type", "synthetic"}, {"samples", 600}, {"shape", {1, 12, 12}}};
  const Json gpt2{{"type", "gpt2"}, {"n_layer", 2},      {"n_head", 2},
                  {"n_embd", 64},   {"n_positions", 16}, {"dropout", 0.1}};
  const Json mlp{{"type", "mlp"}, {"hidden_sizes", {64, 24}}, {"activation", "gelu"}, {"dropout", 0.1}};
  return {{"gpt2", gpt2, text},
          {"gpt2 in fp32", gpt2, text, false},
          {"mlp", mlp, images},
          {"convnet", {{"type", "convnet"}, {"channels", {6, 8}}, {"kernel_size", 3}}, images, false}};
}

// Simulated GPUs, and jobs on them.
class Lab {
 public:
  // `more` of each GPU: alike().
  explicit Lab(const std::string& more = "") : gpus_(alike(kGpus, more)) {}
  Words job(const Model& model, int workers, const std::string& output, int steps,
            const Words& overrides = {}, const Words& options = {}) const {
    const Json config{{"output_dir", (folder_ / output).string()},
                      {"device", "cuda"},
                      {"model", model.model},
                      {"data", model.data},
                      {"train",
                       {{"max_steps", steps},
                        {"global_batch_size", 16},
                        {"micro_batch_size", 2},
                        {"optim", "adamw"},
                        {"learning_rate", 0.003},
                        {"weight_decay", 0.1},
                        {"max_grad_norm", 1.0},
                        {"bf16", model.bf16},
                        {"eval_steps", 0},
                        {"save_steps", 3},
                        {"logging_steps", 1}}}};
    const std::string file = (folder_ / (output + ".json")).string();
    write_text(file, config.dump());
    Words argv{programs_.dtrun(), "--standalone", "--nproc_per_node", std::to_string(workers)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.push_back(file);
    argv.insert(argv.end(), overrides.begin(), overrides.end());
    return argv;
  }
  Words variables(Words more = {}) const {
    for (const std::string& entry : gpus_.environment()) more.push_back(entry);
    more.push_back("DTRUN_TEST_GPUS=" + std::to_string(kGpus));
    return more;
  }
  // Variables of a job whose workers stop there.
  Words stopped(const std::vector<Stop>& stops, const std::string& name) const {
    const std::filesystem::path marks = output(name + " marks");
    std::filesystem::create_directory(marks);
    return {variable_of(stops, marks)};
  }
  Ended run(const Words& argv, const Words& more = {}) const { return Process(argv, variables(more)).end(); }
  std::filesystem::path output(const std::string& name) const { return folder_ / name; }
  std::string model(const std::string& name) const {
    return read_if_there(output(name) / "model.safetensors");
  }

 private:
  const Programs programs_{DTRUN_BIN_DIR "/../tests/gpu_worker"};
  const FakeGpus gpus_;
  const Folder folder_;
};

inline bool says(const Ended& ended, const std::string& text) {
  return ended.err.find(text) != std::string::npos;
}

inline Json last_train_line(const std::filesystem::path& output) {
  Json last;
  std::istringstream lines(read_if_there(output / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    if (entry["event"] == "train") last = entry;
  }
  return last;
}

}  // namespace dtrun::test
