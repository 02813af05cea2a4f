#include "proto/wire/training.h"

#include <algorithm>

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

dtrun::DeviceMemory from_wire(const DeviceMemory& wire) {
  return {.used = wire.used(), .peak = wire.peak(), .total = wire.total()};
}

void to_wire(const dtrun::DeviceMemory& memory, DeviceMemory* wire) {
  wire->set_used(memory.used);
  wire->set_peak(memory.peak);
  wire->set_total(memory.total);
}

dtrun::PhaseTimes from_wire(const PhaseTimes& wire) {
  return {.loading = wire.loading(),
          .training = wire.training(),
          .evaluating = wire.evaluating(),
          .saving = wire.saving()};
}

void to_wire(const dtrun::PhaseTimes& times, PhaseTimes* wire) {
  wire->set_loading(times.loading);
  wire->set_training(times.training);
  wire->set_evaluating(times.evaluating);
  wire->set_saving(times.saving);
}

dtrun::StepTimes from_wire(const StepTimes& wire) {
  dtrun::StepTimes times{.steps = wire.steps(),
                         .math = wire.math(),
                         .data = wire.data(),
                         .wait_peers = wire.wait_peers(),
                         .other = wire.other(),
                         .microbatches = wire.microbatches(),
                         .wait_for = {wire.wait_for().begin(), wire.wait_for().end()}};
  if (wire.has_sent()) times.sent = wire.sent();
  if (wire.has_received()) times.received = wire.received();
  return times;
}

void to_wire(const dtrun::StepTimes& times, StepTimes* wire) {
  wire->set_steps(times.steps);
  wire->set_math(times.math);
  wire->set_data(times.data);
  wire->set_wait_peers(times.wait_peers);
  wire->set_other(times.other);
  wire->set_microbatches(times.microbatches);
  for (const double seconds : times.wait_for) wire->add_wait_for(seconds);
  if (times.sent) wire->set_sent(*times.sent);
  if (times.received) wire->set_received(*times.received);
}

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

dtrun::Checkpoints from_wire(const Checkpoints& wire) {
  return {.written = wire.written(),
          .failed = wire.failed(),
          .step = wire.step(),
          .seconds = wire.seconds(),
          .bytes = wire.bytes()};
}

void to_wire(const dtrun::Checkpoints& checkpoints, Checkpoints* wire) {
  wire->set_written(checkpoints.written);
  wire->set_failed(checkpoints.failed);
  wire->set_step(checkpoints.step);
  wire->set_seconds(checkpoints.seconds);
  wire->set_bytes(checkpoints.bytes);
}

dtrun::LoggedStep from_wire(const LoggedStep& wire) {
  return {.step = wire.step(),
          .loss = wire.loss(),
          .learning_rate = wire.learning_rate(),
          .grad_norm = wire.grad_norm(),
          .samples_per_second = wire.samples_per_second()};
}

void to_wire(const dtrun::LoggedStep& line, LoggedStep* wire) {
  wire->set_step(line.step);
  wire->set_loss(line.loss);
  wire->set_learning_rate(line.learning_rate);
  wire->set_grad_norm(line.grad_norm);
  wire->set_samples_per_second(line.samples_per_second);
}

dtrun::EvaluatedStep from_wire(const EvaluatedStep& wire) {
  return {.step = wire.step(), .loss = wire.loss(), .accuracy = wire.accuracy()};
}

void to_wire(const dtrun::EvaluatedStep& evaluated, EvaluatedStep* wire) {
  wire->set_step(evaluated.step);
  wire->set_loss(evaluated.loss);
  wire->set_accuracy(evaluated.accuracy);
}

dtrun::Progress from_wire(const Progress& wire) {
  dtrun::Progress progress{.phase = phase_of(wire.phase()),
                           .step = wire.step(),
                           .total_steps = wire.total_steps(),
                           .epoch = wire.epoch(),
                           .loss = {},
                           .learning_rate = wire.learning_rate(),
                           .samples_per_second = wire.samples_per_second(),
                           .from_in_memory_checkpoint = wire.from_in_memory_checkpoint()};
  if (wire.has_loss()) progress.loss = wire.loss();
  if (wire.has_accuracy()) progress.accuracy = wire.accuracy();
  if (wire.has_first_step()) progress.first_step = wire.first_step();
  if (wire.has_memory()) progress.memory = from_wire(wire.memory());
  if (wire.has_times()) progress.times = from_wire(wire.times());
  if (wire.has_step_times()) progress.step_times = from_wire(wire.step_times());
  const int told = std::min(wire.logged_size(), static_cast<int>(kLoggedStepsTold));
  for (int i = wire.logged_size() - told; i < wire.logged_size(); ++i)
    progress.logged.push_back(from_wire(wire.logged(i)));
  if (wire.has_evaluated()) progress.evaluated = from_wire(wire.evaluated());
  progress.saved_step = wire.saved_step();
  if (wire.has_step_durations()) progress.step_durations = from_wire(wire.step_durations());
  if (wire.has_checkpoints()) progress.checkpoints = from_wire(wire.checkpoints());
  return progress;
}

void to_wire(const dtrun::Progress& progress, Progress* wire) {
  wire->set_phase(static_cast<Progress::Phase>(progress.phase));
  wire->set_step(progress.step);
  wire->set_total_steps(progress.total_steps);
  wire->set_epoch(progress.epoch);
  if (progress.loss) wire->set_loss(*progress.loss);
  wire->set_learning_rate(progress.learning_rate);
  wire->set_samples_per_second(progress.samples_per_second);
  if (progress.accuracy) wire->set_accuracy(*progress.accuracy);
  if (progress.first_step) wire->set_first_step(*progress.first_step);
  if (progress.memory) to_wire(*progress.memory, wire->mutable_memory());
  wire->set_from_in_memory_checkpoint(progress.from_in_memory_checkpoint);
  if (progress.times) to_wire(*progress.times, wire->mutable_times());
  if (progress.step_times) to_wire(*progress.step_times, wire->mutable_step_times());
  for (const dtrun::LoggedStep& line : progress.logged) to_wire(line, wire->add_logged());
  if (progress.evaluated) to_wire(*progress.evaluated, wire->mutable_evaluated());
  wire->set_saved_step(progress.saved_step);
  if (progress.step_durations) to_wire(*progress.step_durations, wire->mutable_step_durations());
  if (progress.checkpoints) to_wire(*progress.checkpoints, wire->mutable_checkpoints());
}

dtrun::Completion from_wire(const Completion& wire) {
  dtrun::Completion completion{.step = wire.step(),
                               .loss = wire.loss(),
                               .model_path = wire.model_path(),
                               .params_sha256 = wire.params_sha256(),
                               .seconds = wire.seconds(),
                               .first_step = wire.first_step(),
                               .training_seconds = wire.training_seconds(),
                               .samples_per_second = wire.samples_per_second(),
                               .math = wire.math(),
                               .wait_gradients = wire.wait_gradients(),
                               .wait_data = wire.wait_data(),
                               .other = wire.other()};
  if (wire.has_accuracy()) completion.accuracy = wire.accuracy();
  if (wire.has_memory()) completion.memory = from_wire(wire.memory());
  return completion;
}

void to_wire(const dtrun::Completion& completion, Completion* wire) {
  wire->set_step(completion.step);
  wire->set_loss(completion.loss);
  if (completion.accuracy) wire->set_accuracy(*completion.accuracy);
  wire->set_model_path(completion.model_path);
  wire->set_params_sha256(completion.params_sha256);
  wire->set_seconds(completion.seconds);
  wire->set_first_step(completion.first_step);
  wire->set_training_seconds(completion.training_seconds);
  wire->set_samples_per_second(completion.samples_per_second);
  wire->set_math(completion.math);
  wire->set_wait_gradients(completion.wait_gradients);
  wire->set_wait_data(completion.wait_data);
  wire->set_other(completion.other);
  if (completion.memory) to_wire(*completion.memory, wire->mutable_memory());
}

}  // namespace dtrun::training
