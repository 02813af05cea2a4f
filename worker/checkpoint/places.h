// Names and places within an output directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

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

// The output_dir that a model.safetensors belongs to: the file's directory, or the one above its checkpoint.
std::filesystem::path run_directory_of(const std::filesystem::path& model);

// The model.safetensors of a run: the final one, or else that of the newest checkpoint. `run`: an output_dir,
// or a checkpoint. Throws WorkerError, EX_NOINPUT, if there is none.
std::filesystem::path model_file_of(const std::filesystem::path& run);

}  // namespace dtrun::worker
