// Checkpoints: OUTPUT_DIR/checkpoints/step-00000500/{model.safetensors, optimizer.safetensors,
// trainer_state.json, manifest.json}. Written into a temporary directory, synced, renamed, parent synced: a
// checkpoint exists whole or not at all. No checkpoint depends on the world size or the device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/checkpoint/state_text.h"
#include "worker/config/config.h"
#include "worker/core/evaluation_record.h"
#include "worker/model/program.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {

// Everything that a run needs to go on as if it had never stopped.
struct TrainState {
  std::int64_t step = 0;          // optimizer steps done
  std::vector<float> parameters;  // flat
  std::vector<OptimizerSlot> optimizer;
  std::string config_json;  // canonical config of the run that wrote the checkpoint
  EvaluationRecord evaluations = {};
  std::string device = {};  // Device::fingerprint() of the device that computed it; empty: written by an
                            // older dtrun
  TeacherFile teacher = {};
  DataIdentity data = {};
};

// False for a diverged model, whose checkpoint would be useless and would displace useful ones.
bool parameters_are_finite(const TrainState& state);

// Receives messages about skipped checkpoints, with the reason.
using Notice = std::function<void(const std::string&)>;

// The newest checkpoint below output_dir whose manifest, sizes and checksums are right; a damaged one is
// passed over with a notice that names the file and the fault. Nothing if there is none. Throws WorkerError,
// EX_CONFIG, if it does not fit the program.
std::optional<TrainState> load_newest(const std::filesystem::path& output_dir, const Program& program,
                                      const Notice& notice);

// Step of the checkpoint that load_newest would return, without keeping its values or checking that they fit
// the program.
std::optional<std::int64_t> newest_step(const std::filesystem::path& output_dir, const Notice& notice);

// Whether anything there has a checkpoint's name, damaged or not.
bool has_checkpoints(const std::filesystem::path& output_dir);

// This very checkpoint directory. Throws WorkerError: EX_NOINPUT if missing or damaged, EX_CONFIG if it does
// not fit the program.
TrainState load_checkpoint(const std::filesystem::path& directory, const Program& program);

// The parameters alone of a checkpoint that must be of this step. Throws as load_checkpoint() does.
std::vector<float> load_parameters_of_step(const std::filesystem::path& directory, const Program& program,
                                           std::int64_t step);

// The parameters in published_weights(from); also those of Hugging Face's GPT-2, whose names may begin with
// "transformer.". Tensors that the program does not have are passed over. Throws WorkerError:
// EX_NOINPUT if there is none or it is damaged, EX_CONFIG if a tensor is missing or has another shape.
std::vector<float> load_parameters(const std::filesystem::path& from, const Program& program);

// The same for a run that begins, by its train.init_from. Tensors that the program does not have are told,
// and a head that is not tied to its embedding is refused. With ignore_mismatched_sizes parameters that lack
// a tensor of their shape get the seed's initial values, each with a notice; else the job is refused.
std::vector<float> load_initial_parameters(const TrainConfig& train, const Program& program,
                                           const Notice& notice);

// Writes synchronously; replaces an older directory of the same step; removes the oldest beyond `keep`
// (0: keeps all) once the new one is safe, but never that of the best step, which is one of `keep` unless
// that is 1. Returns its directory. Throws WorkerError, EX_IOERR or EX_CANTCREAT (worker/base/error.h), when
// output_dir cannot be written, leaving older checkpoints as they were. Where the disk is full, the oldest
// checkpoint that would be removed afterwards is removed first.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir, const Program& program,
                                      const TrainState& state, int keep);

// output_dir/model.safetensors, atomically. Its metadata is the network's description().
std::filesystem::path save_model(const std::filesystem::path& output_dir, const Program& program,
                                 std::span<const float> parameters);

// Creates output_dir, and checks that it and its contents can be written. EX_IOERR or EX_CANTCREAT, naming
// the directory.
Status check_output_dir(const std::filesystem::path& output_dir);

}  // namespace dtrun::worker
