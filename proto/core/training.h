// What the built-in trainer says of its run. One struct each from the worker to its agent, to the
// coordinator, and to all texts and JSON for people and programs; as messages in proto/training.proto.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

// Bytes, of a device that has memory of its own.
struct DeviceMemory {
  std::uint64_t used = 0;
  std::uint64_t peak = 0;   // the most that was used since the worker began
  std::uint64_t total = 0;  // that the device has

  bool operator==(const DeviceMemory&) const = default;
};

// A worker's time in one generation by its phases, in seconds; they add up to it.
struct PhaseTimes {
  double loading = 0;
  double training = 0;
  double evaluating = 0;
  double saving = 0;  // training waits for it; most of a save is beside training

  double total() const { return loading + training + evaluating + saving; }

  bool operator==(const PhaseTimes&) const = default;
};

inline constexpr int kMostWaitedFor = 64;

// What one worker's steps of one generation were spent on: seconds, that only grow. Evaluations and saves are
// not among them.
struct StepTimes {
  std::int64_t steps = 0;  // done in this generation
  double math = 0;         // forward, backward and the optimizer, on the slowest lane
  double data = 0;         // wait for samples, likewise
  double wait_peers = 0;   // for the gradients of other workers
  double other = 0;
  std::int64_t microbatches = 0;  // that this worker computed for them: ranks need not have equally many
  // Of wait_peers, by rank: for messages of peers on other hosts, while nothing else was left to do. Empty in
  // worlds of more than kMostWaitedFor ranks, and without messages.
  std::vector<double> wait_for = {};
  // Of messages between workers, in bytes; none where a library that does not tell moves them.
  std::optional<std::int64_t> sent = {}, received = {};

  bool operator==(const StepTimes&) const = default;
};

// How long the steps of one generation took, evaluations and saves left out.
inline constexpr double kStepDurationBounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                                 0.5,   1,     2,     5,    10,   20,   50,  100};  // seconds
struct StepDurations {
  // Of steps up to each bound that are above the one before, then of longer ones.
  std::array<std::int64_t, std::size(kStepDurationBounds) + 1> counts = {};
  double seconds = 0;  // of all

  void add(double step) {
    const auto* const bound = std::ranges::lower_bound(kStepDurationBounds, step);
    ++counts[static_cast<std::size_t>(bound - std::begin(kStepDurationBounds))];
    seconds += step;
  }

  bool operator==(const StepDurations&) const = default;
};

// What a worker wrote of checkpoints in one generation.
struct Checkpoints {
  std::int64_t written = 0;
  std::int64_t failed = 0;  // that found no room, or no way
  // The newest that is on the disk; step 0: none yet.
  std::int64_t step = 0;
  double seconds = 0;  // it took to be written, beside the training
  std::int64_t bytes = 0;

  bool operator==(const Checkpoints&) const = default;
};

// A line of metrics.jsonl on training, as far as curves need it.
struct LoggedStep {
  std::int64_t step = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, samples_per_second = 0;

  bool operator==(const LoggedStep&) const = default;
};
inline constexpr std::size_t kLoggedStepsTold = 16;  // at most, in a Progress

// An evaluation, as metrics.jsonl has it.
struct EvaluatedStep {
  std::int64_t step = 0;
  double loss = 0, accuracy = 0;

  bool operator==(const EvaluatedStep&) const = default;
};

// How far the training is. The newest one replaces the one before.
struct Progress {
  enum class Phase { kLoading, kTraining, kEvaluating, kSaving };  // the values are the wire's
  Phase phase = Phase::kLoading;
  std::int64_t step = 0;         // optimizer steps done
  std::int64_t total_steps = 0;  // 0: not known yet
  double epoch = 0;              // fractional
  std::optional<double> loss =
      {};  // mean over the targets since the previous report; none before the first step
  double learning_rate = 0;
  double samples_per_second = 0;
  std::optional<double> accuracy = {};          // of the newest evaluation, 0..1
  std::optional<std::int64_t> first_step = {};  // steps done before this generation; none while unknown
  std::optional<DeviceMemory> memory = {};      // that of this worker's device
  bool from_in_memory_checkpoint = false;       // this generation began with a copy in a host's memory
  std::optional<PhaseTimes> times = {};         // of this generation; none from a program that keeps none
  std::optional<StepTimes> step_times = {};     // likewise; none before the first step
  // Rank 0's newest lines of metrics, oldest first, and its newest evaluation in this generation.
  std::vector<LoggedStep> logged = {};
  std::optional<EvaluatedStep> evaluated = {};
  std::int64_t saved_step = 0;  // of the checkpoint that was begun last in this generation; 0: none
  std::optional<StepDurations> step_durations = {};  // none before the first step
  std::optional<Checkpoints> checkpoints = {};       // none from a worker that keeps none

  bool operator==(const Progress&) const = default;
};

// The seconds of a phase.
inline double& part_of(PhaseTimes& times, Progress::Phase phase) {
  switch (phase) {
    case Progress::Phase::kLoading:
      return times.loading;
    case Progress::Phase::kEvaluating:
      return times.evaluating;
    case Progress::Phase::kSaving:
      return times.saving;
    case Progress::Phase::kTraining:
      break;
  }
  return times.training;
}

// Training is complete: the message of rank 0.
struct Completion {
  std::int64_t step = 0;
  double loss = 0;                      // these two are of the last evaluation
  std::optional<double> accuracy = {};  // 0..1
  std::string model_path = {};
  std::string params_sha256 = {};
  double seconds = 0;  // of this generation, with evaluations
  // Without evaluations, in this generation. training_seconds 0: nothing was left to train, or it was not
  // told.
  std::int64_t first_step = 0;  // done before it
  double training_seconds = 0;
  double samples_per_second = 0;
  double math = 0, wait_gradients = 0, wait_data = 0, other = 0;  // shares of training_seconds, 0..1
  std::optional<DeviceMemory> memory = {};                        // of rank 0's device

  bool operator==(const Completion&) const = default;
};

}  // namespace dtrun
