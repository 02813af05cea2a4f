#include "proto/wire/training.h"

#include <algorithm>

#include "proto/wire/fields.h"

namespace dtrun::training {
namespace {

using Phase = dtrun::Progress::Phase;
static_assert(static_cast<int>(Phase::kLoading) == Progress::LOADING);
static_assert(static_cast<int>(Phase::kTraining) == Progress::TRAINING);
static_assert(static_cast<int>(Phase::kEvaluating) == Progress::EVALUATING);
static_assert(static_cast<int>(Phase::kSaving) == Progress::SAVING);

// A phase of a newer build is one of those between two steps.
Phase phase_of(Progress::Phase wire) {
  return Progress::Phase_IsValid(wire) ? static_cast<Phase>(wire) : Phase::kTraining;
}

}  // namespace

DTRUN_WIRE(dtrun::DeviceMemory, DeviceMemory, used, peak, total)

DTRUN_WIRE(dtrun::PhaseTimes, PhaseTimes, loading, training, evaluating, saving)

DTRUN_WIRE(dtrun::StepTimes, StepTimes, steps, math, data, wait_peers, other, microbatches, wait_for, sent,
           received)

dtrun::StepDurations from_wire(const StepDurations& wire) {
  dtrun::StepDurations durations{.counts = {}, .seconds = wire.seconds()};
  const auto told = std::min(static_cast<std::size_t>(wire.counts_size()), durations.counts.size());
  std::copy_n(wire.counts().begin(), told, durations.counts.begin());
  return durations;
}

// The zeros at the end go without saying.
void to_wire(const dtrun::StepDurations& durations, StepDurations* wire) {
  const auto newest = std::ranges::find_if(durations.counts.rbegin(), durations.counts.rend(),
                                           [](std::int64_t count) { return count != 0; });
  wire->mutable_counts()->Assign(durations.counts.begin(), newest.base());
  wire->set_seconds(durations.seconds);
}

DTRUN_WIRE(dtrun::Checkpoints, Checkpoints, written, failed, step, seconds, bytes)

DTRUN_WIRE(dtrun::LoggedStep, LoggedStep, step, loss, learning_rate, grad_norm, samples_per_second)

DTRUN_WIRE(dtrun::EvaluatedStep, EvaluatedStep, step, loss, accuracy)

DTRUN_FIELDS(dtrun::Progress, Progress, phase, step, total_steps, epoch, loss, learning_rate,
             samples_per_second, accuracy, first_step, memory, from_in_memory_checkpoint, times, step_times,
             logged, evaluated, saved_step, step_durations, checkpoints)

dtrun::Progress from_wire(const Progress& wire) {
  dtrun::Progress progress;
  read_fields(wire, &progress);
  progress.phase = phase_of(wire.phase());
  auto& logged = progress.logged;
  if (logged.size() > kLoggedStepsTold) logged.erase(logged.begin(), logged.end() - kLoggedStepsTold);
  return progress;
}

void to_wire(const dtrun::Progress& progress, Progress* wire) { write_fields(progress, wire); }

DTRUN_WIRE(dtrun::Completion, Completion, step, loss, accuracy, model_path, params_sha256, seconds,
           first_step, training_seconds, samples_per_second, math, wait_gradients, wait_data, other, memory)

}  // namespace dtrun::training
