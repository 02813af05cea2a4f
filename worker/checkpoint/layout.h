// Names and places within an output directory, and the two safetensors files as a network sees them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kStateFile[] = "trainer_state.json";
inline constexpr char kScratchPrefix[] = ".tmp-";

std::filesystem::path checkpoints_directory(const std::filesystem::path& output_dir);

// 500 -> "step-00000500"
std::string step_name(std::int64_t step);

// OUTPUT_DIR's checkpoints by step, the oldest first.
std::map<std::int64_t, std::filesystem::path> list_checkpoints(const std::filesystem::path& output_dir);

// Tensors of model.safetensors, and of optimizer.safetensors: "momentum_buffer.conv1.weight".
std::vector<Tensor> model_tensors(const Program& program);
std::vector<Tensor> optimizer_tensors(const Program& program, const std::vector<OptimizerSlot>& slots);

// Back into flat vectors. EX_CONFIG if the file's tensors are not those of the program.
Result<std::vector<float>> model_values(const Safetensors& file, const Program& program);
Result<std::vector<OptimizerSlot>> optimizer_values(const Safetensors& file, const Program& program);

// trainer_state.json: {"format_version", "step", "config"}.
struct StateText {
  std::int64_t step = 0;
  std::string config_json;
};
std::string to_json(const StateText& state);
Result<StateText> parse_state(std::string_view text);  // EX_NOINPUT

}  // namespace dtrun::worker
