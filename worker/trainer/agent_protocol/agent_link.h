// The trainer's interface to the agent that started it. ControlClient speaks the real protocol; tests use
// smaller implementations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/core/device_memory.h"

namespace dtrun::worker {

enum class Phase { kLoading, kTraining, kEvaluating, kSaving };

// The progress of training. The newest report replaces the one before.
struct TrainingProgress {
  Phase phase = Phase::kLoading;
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0;
  std::optional<double> loss;  // mean over the targets since the previous report; none before the first step
  double learning_rate = 0;
  double samples_per_second = 0;
  double accuracy = -1;                     // of the newest evaluation; negative: none yet
  std::string note;                         // one line for people, mostly empty
  std::optional<std::int64_t> first_step;   // steps done before this generation; none while unknown
  std::optional<DeviceMemory> memory = {};  // that of this worker's device, if it has its own
  bool from_in_memory_checkpoint = false;   // this generation began with a copy in a host's memory
};

struct Completion {
  std::int64_t step = 0;
  double loss = 0, accuracy = -1;
  std::string model_path, params_sha256;
  double seconds = 0;           // of this generation, with evaluations
  std::int64_t first_step = 0;  // done before this generation
  double training_seconds = 0;  // without evaluations; 0: nothing was left to train
  double samples_per_second = 0;
  double math = 0, wait_gradients = 0, wait_data = 0, other = 0;  // shares of training_seconds, 0..1
  std::optional<DeviceMemory> memory = {};                        // as above
};

class AgentLink {
 public:
  virtual ~AgentLink() = default;
  // True once this worker was told to end after the current step. Cheap; any thread.
  virtual bool stop_requested() const = 0;
  // True once the generation is to end after the current step, and this worker to go on in the next one.
  // Cheap; any thread.
  virtual bool pause_requested() const { return false; }
  virtual void report(const TrainingProgress& progress) = 0;
  virtual void completed(const Completion& completion) = 0;
};

}  // namespace dtrun::worker
