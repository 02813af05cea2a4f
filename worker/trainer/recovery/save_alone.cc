#include "worker/trainer/recovery/save_alone.h"

#include <algorithm>
#include <filesystem>

#include "proto/base/log.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/output_lock.h"
#include "worker/metrics/metrics.h"

namespace dtrun::worker {
namespace {

// The rank that wrote may have been lost between this step and its line, which a later run cannot know.
void log_alone(const Replica& replica) {
  const TrainMetrics& line = replica.log.newest;
  const std::filesystem::path directory = replica.config.output_dir;
  if (line.step != replica.state.step || !std::filesystem::exists(directory / "metrics.jsonl")) return;
  try {
    MetricsWriter(directory, line.step, log_warn).write(line);
  } catch (const WorkerError& error) {
    log_warn(error.what());
  }
}

// Of local replicas the last sync's, if this worker holds the states of all.
TrainState held_state(const Replica& replica) {
  if (replica.kept.empty()) return replica.snapshot();
  const TrainState& last = replica.kept.back().state;
  const bool whole =
      std::ranges::none_of(last.optimizer, [](const OptimizerSlot& slot) { return slot.values.empty(); });
  return whole ? last : TrainState();
}

}  // namespace

void save_alone(const Replica& replica) {
  const TrainState state = held_state(replica);
  const JobConfig& config = replica.config;
  if (state.parameters.empty() || state.step == 0) return;
  try {
    // Another worker of this run may be saving the same.
    const OutputLock lock(config.output_dir, kLockPatience);
    const auto newest = newest_step(config.output_dir, [](const std::string&) {});
    if (newest && *newest >= state.step) return;
    save_checkpoint(config.output_dir, replica.program, state, config.train.save_total_limit);
    log_info("stopped after step " + std::to_string(state.step) + "; checkpoint saved");
    if (replica.kept.empty()) log_alone(replica);
  } catch (const WorkerError& error) {
    log_warn("the state of step " + std::to_string(state.step) + " was not saved: " + error.what());
  }
}

}  // namespace dtrun::worker
