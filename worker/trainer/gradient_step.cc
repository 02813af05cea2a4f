#include "worker/trainer/gradient_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/base/stop_point.h"
#include "worker/device/range.h"

namespace dtrun::worker {

GradientStep::GradientStep(const TrainConfig& config, const Program& program, const Dataset& data,
                           ProcessGroup& group, Device& device, LaneTeam& lanes, StepClock& clock)
    : config_(config),
      program_(program),
      data_(data),
      group_(group),
      device_(device),
      arithmetic_(device.arithmetic()),
      lanes_(lanes),
      clock_(clock),
      size_(kStatisticsFloats + program.size),
      all_reduce_(group, device, size_, summed_buckets(program),
                  config.in_lock_step() ? config.global_batch_size / config.micro_batch_size : lanes.size()),
      inputs_(lanes.size(), MicrobatchInput(data, config.micro_batch_size)),
      lane_times_(lanes.size()) {
  if (config.in_lock_step()) lock_step_.emplace(config, program, data, group, device, lanes, clock);
}

// Waits for the lanes: after a failed step they may still compute on memory that is freed here, or with
// weights that change next.
GradientStep::~GradientStep() {
  try {
    lanes_.run([](int, Lane& lane) {
      lane.stream().wait();
      lane.gradients().wait();
    });
  } catch (const WorkerError&) {
    // The device failed and does no more work; its next use throws.
  }
}

float* GradientStep::run(const StepPlan& plan, const float* weights, const std::optional<StepPlan>& next) {
  plan_ = plan;
  if (plan.epoch != order_epoch_) {
    StepClock::Scope timed(clock_, StepClock::kData);
    order_ = EpochOrder(config_.seed, plan.epoch, data_.size());
    order_epoch_ = plan.epoch;
  }
  const LeafRange own = all_reduce_.own(plan.leaves);
  {
    StepClock::Scope waiting(clock_, StepClock::kGradients);  // until peers have read the last step's
    all_reduce_.begin(plan.leaves);
  }
  if (lock_step_) {
    run_in_lock_step(weights);
  } else {
    next_leaf_.store(own.begin, std::memory_order_relaxed);
    lanes_.run([&](int lane_index, Lane& lane) { run_leaves(lane, lane_index, weights, own.end); });
    clock_.add(*std::ranges::max_element(lane_times_, {}, &StepClock::LaneTime::total), own.end - own.begin);
  }
  if (!arithmetic_.device_is_host()) {
    // The device's remaining computation does not count as a wait for peers.
    StepClock::Scope computing(clock_, StepClock::kMath);
    const Range range(device_, Operation::Kind::kWait);
    lanes_.run([&](int, Lane& lane) {
      if (next && lanes_.size() == 1 && !lock_step_) prepare(lane, *next);
      lane.stream().wait();
      if (!all_reduce_.has_peers()) lane.gradients().wait();
    });
    if (lock_step_) lock_step_->wait(!all_reduce_.has_peers());
  }
  if (!all_reduce_.has_peers()) return all_reduce_.finish();
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range range(device_, Operation::Kind::kExchange);
  return all_reduce_.finish();
}

void GradientStep::run_leaves(Lane& lane, int lane_index, const float* weights, std::int64_t end) {
  lane_times_[lane_index] = {};
  std::int64_t leaf = next_leaf_.fetch_add(1, std::memory_order_relaxed);
  if (leaf >= end) return;
  lane.parameters_changed(weights);
  for (; leaf < end; leaf = next_leaf_.fetch_add(1, std::memory_order_relaxed))
    run_leaf(lane, lane_index, leaf);
}

// The exchange of gradients begins behind the last norm.
void GradientStep::run_in_lock_step(const float* weights) {
  lock_step_->run(
      {.leaves = plan_.leaves,
       .weights = weights,
       .microbatch = [this](std::int64_t leaf,
                            MicrobatchInput& input) { return microbatch_of(plan_, leaf, input); },
       .out = [this](std::int64_t leaf, Lane& lane) { return all_reduce_.take(leaf, lane.stream()); },
       .completed =
           [this](std::int64_t leaf, Lane& lane) {
             for (int bucket = 0; bucket < static_cast<int>(program_.buckets.size()); ++bucket)
               all_reduce_.complete(leaf, bucket, lane.gradients());
           }});
}

void GradientStep::run_leaf(Lane& lane, int lane_index, std::int64_t leaf) {
  stop_point(StopPoint::kMicrobatch);
  group_.check();
  float* const out = all_reduce_.take(leaf, lane.stream());
  const auto begin = StepClock::Clock::now();
  const MicrobatchKey key = key_of(plan_, leaf);
  const Microbatch microbatch =
      lane.is_prepared(key) ? Microbatch{.key = key} : microbatch_of(plan_, leaf, inputs_[lane_index]);
  const auto read = StepClock::Clock::now();
  const int last_bucket = static_cast<int>(program_.buckets.size()) - 1;
  lane.train(microbatch, out, [&](int bucket) {
    if (bucket != last_bucket) all_reduce_.complete(leaf, bucket, lane.gradients());
  });
  const auto computed = StepClock::Clock::now();
  lane_times_[lane_index].data += read - begin;
  lane_times_[lane_index].math += computed - read;
  OperationLog::trace({.kind = Operation::Kind::kData, .lane = lane_index}, begin, read);
  OperationLog::trace({.kind = Operation::Kind::kMath, .lane = lane_index}, read, computed);
  all_reduce_.complete(leaf, last_bucket, lane.gradients());
  Pulse::beat();
}

// Ignores faults of the samples, which their own step reports.
void GradientStep::prepare(Lane& lane, const StepPlan& next) {
  const LeafRange own = all_reduce_.own(next.leaves);
  if (own.begin == own.end) return;
  try {
    lane.prepare(microbatch_of(next, own.begin, inputs_[0]));
  } catch (const WorkerError&) {
  }
}

std::optional<std::int64_t> GradientStep::first_not_finite(const float* weights) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const LeafRange own = all_reduce_.own(plan_.leaves);
  std::vector<std::int64_t> firsts(static_cast<std::size_t>(lanes_.size()), kNone);
  next_leaf_.store(own.begin, std::memory_order_relaxed);
  lanes_.run([&](int lane_index, Lane& lane) {
    const Buffer out = arithmetic_.allocate(Where::kDevice, size_);
    std::vector<float> values(size_);
    lane.parameters_changed(weights);
    std::int64_t& first = firsts[lane_index];
    while (first == kNone) {
      const std::int64_t leaf = next_leaf_.fetch_add(1, std::memory_order_relaxed);
      if (leaf >= own.end) return;
      group_.check();
      lane.train(microbatch_of(plan_, leaf, inputs_[lane_index]), out.data(), [](int) {});
      arithmetic_.copy(lane.stream(), values.data(), out.data(), values.size());
      lane.stream().wait();
      const bool finite = std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
      if (!finite) first = leaf;
      Pulse::beat();
    }
  });
  std::vector<std::int64_t> all(static_cast<std::size_t>(group_.size()));
  all[static_cast<std::size_t>(group_.rank())] = std::ranges::min(firsts);
  group_.all_gather(bytes_of(all));
  const std::int64_t first = std::ranges::min(all);
  return first == kNone ? std::nullopt : std::optional(first);
}

MicrobatchKey GradientStep::key_of(const StepPlan& plan, std::int64_t leaf) const {
  return {.seed = config_.seed,
          .number = static_cast<std::uint64_t>(plan.first_leaf + leaf),
          .epoch = plan.epoch};
}

Microbatch GradientStep::microbatch_of(const StepPlan& plan, std::int64_t leaf, MicrobatchInput& input) {
  return input.fill(samples_of(plan, leaf), key_of(plan, leaf));
}

std::vector<std::uint32_t> GradientStep::samples_of(const StepPlan& plan, std::int64_t leaf) const {
  const std::int64_t first = leaf * config_.micro_batch_size;
  std::vector<std::uint32_t> samples(std::min<std::int64_t>(config_.micro_batch_size, plan.samples - first));
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i] = order_.at(plan.first_sample + first + static_cast<std::int64_t>(i));
  return samples;
}

}  // namespace dtrun::worker
