// Writes checkpoints and the final model.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "worker/base/error.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/state_text.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

std::string_view bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// A name that no other writer has, in this process or another.
fs::path scratch_path(const fs::path& directory, const std::string& name) {
  static std::atomic<int> counter{0};
  return directory /
         (kScratchPrefix + name + "-" + std::to_string(getpid()) + "-" + std::to_string(++counter));
}

void remove_abandoned(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kScratchPrefix)) remove_if_abandoned(entry->path());
  }
}

// Writes one file of the checkpoint and enters it into the manifest.
void add_file(const fs::path& directory, const char* name, std::span<const std::string_view> pieces,
              Manifest* manifest) {
  (*manifest)[name] = digest_of(pieces);
  write_synced(directory / name, pieces);
}

void check_sizes(const Program& program, const TrainState& state) {
  bool fits = state.parameters.size() == program.size;
  for (const OptimizerSlot& slot : state.optimizer) fits = fits && slot.values.size() == program.size;
  if (!fits)
    throw WorkerError(kExitSoftware, "checkpoint: the state's vectors are not as long as the network's");
}

void write_files(const fs::path& directory, const Program& program, const TrainState& state) {
  Manifest manifest;
  const std::string model_header = safetensors_header(model_tensors(program), description(program));
  const std::string_view model[] = {model_header, bytes_of(state.parameters)};
  add_file(directory, kModelFile, model, &manifest);

  const std::string optimizer_header =
      safetensors_header(optimizer_tensors(program, state.optimizer), {{"format", "pt"}});
  std::vector<std::string_view> optimizer = {optimizer_header};
  for (const OptimizerSlot& slot : state.optimizer) optimizer.push_back(bytes_of(slot.values));
  add_file(directory, kOptimizerFile, optimizer, &manifest);

  const std::string state_text = to_json(StateText{.step = state.step,
                                                   .config_json = state.config_json,
                                                   .evaluations = state.evaluations,
                                                   .device = state.device,
                                                   .teacher = state.teacher,
                                                   .data = state.data});
  const std::string_view state_pieces[] = {state_text};
  add_file(directory, kStateFile, state_pieces, &manifest);

  const std::string manifest_text = to_json(manifest);
  const std::string_view manifest_pieces[] = {manifest_text};
  write_synced(directory / kManifestFile, manifest_pieces);
  sync_directory(directory);
}

// Removes the oldest up to `step` beyond `keep`, but neither the newest nor that of step `best`. This run
// passed over checkpoints newer than `step` when it resumed: they are left alone, and not counted. Returns
// whether it removed any.
bool prune(const fs::path& output_dir, std::int64_t step, std::int64_t best, int keep) {
  auto checkpoints = list_checkpoints(output_dir);
  checkpoints.erase(checkpoints.upper_bound(step), checkpoints.end());
  auto excess = static_cast<std::int64_t>(checkpoints.size()) - keep;
  if (!checkpoints.empty()) checkpoints.erase(std::prev(checkpoints.end()));
  checkpoints.erase(best);
  bool removed = false;
  for (auto entry = checkpoints.begin(); entry != checkpoints.end() && excess > 0; ++entry, --excess) {
    // Renamed to a scratch name first, so that no reader sees a checkpoint half removed under its own name.
    const fs::path oldest = entry->second;
    const fs::path scratch = scratch_path(oldest.parent_path(), oldest.filename().string());
    std::error_code ignored;
    fs::rename(oldest, scratch, ignored);
    if (!ignored) fs::remove_all(scratch, ignored);
    removed = removed || !ignored;
  }
  return removed;
}

Status status_of(const WorkerError& error) { return Status(error.exit_code(), error.what()); }

}  // namespace

bool parameters_are_finite(const TrainState& state) {
  return std::ranges::all_of(state.parameters, [](float value) { return std::isfinite(value); });
}

fs::path save_checkpoint(const fs::path& output_dir, const Program& program, const TrainState& state,
                         int keep) {
  check_sizes(program, state);
  const fs::path checkpoints = checkpoints_directory(output_dir);
  make_directories(checkpoints);
  remove_abandoned(checkpoints);
  fs::path target = checkpoints / step_name(state.step);
  const std::int64_t best = state.evaluations.best_step;
  const auto write = [&] {
    const ScratchDirectory scratch(scratch_path(checkpoints, step_name(state.step)));
    write_files(scratch.path(), program, state);
    stop_point(StopPoint::kWriting);
    move_directory(scratch.path(), target);
    sync_directory(checkpoints);
  };
  try {
    write();
  } catch (const WorkerError& error) {
    // One good checkpoint always stays.
    if (error.exit_code() != kExitIo || keep < 2 || !prune(output_dir, state.step, best, keep - 1)) throw;
    write();
  }
  if (keep > 0) prune(output_dir, state.step, best, keep);
  return target;
}

fs::path save_model(const fs::path& output_dir, const Program& program, std::span<const float> parameters) {
  if (parameters.size() != program.size) {
    throw WorkerError(kExitSoftware, "model: there are not as many values as the network has parameters");
  }
  make_directories(output_dir);
  const std::string header = safetensors_header(model_tensors(program), description(program));
  const std::string_view pieces[] = {header, bytes_of(parameters)};
  fs::path path = output_dir / kModelFile;
  replace_file(path, pieces);
  return path;
}

Status check_output_dir(const fs::path& output_dir) {
  for (const fs::path& directory : {output_dir, checkpoints_directory(output_dir)}) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return status_of(cannot_write("cannot create " + directory.string(), error.value()));
    std::string probe = (directory / ".probe-XXXXXX").string();
    const Descriptor file(mkstemp(probe.data()));
    if (!file.open()) return status_of(cannot_write("cannot write to " + directory.string(), errno));
    unlink(probe.c_str());
  }
  return Status();
}

}  // namespace dtrun::worker
