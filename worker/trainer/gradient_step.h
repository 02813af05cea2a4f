// One step's sum of gradients: the lanes run this worker's microbatches, their gradients meet in the fixed
// tree, the other workers' partial sums come in while backward still runs. The sum has the same bits on every
// rank, for any number of ranks and lanes. The trainer applies it.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/config/config.h"
#include "worker/core/sampler.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/device/lane_team.h"
#include "worker/model/program.h"
#include "worker/trainer/lock_step.h"
#include "worker/trainer/microbatch_input.h"
#include "worker/trainer/step_clock.h"
#include "worker/trainer/tree_all_reduce.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

// For people and metrics. NaN is always the same NaN: its sign bit means nothing, but would be printed.
inline double mean(double sum, double count) {
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

class GradientStep {
 public:
  // All references must outlive this. `lanes`: those of `device`. Called by all ranks, which then find each
  // other.
  GradientStep(const TrainConfig& config, const Program& program, const Dataset& data, ProcessGroup& group,
               Device& device, LaneTeam& lanes, StepClock& clock);
  // Waits until the lanes' streams have no work left.
  ~GradientStep();

  // `weights`: the parameters, in device memory. `next`: the following step, if it is
  // in the same epoch: a device copies its first samples while it computes. Returns the whole job's
  // [statistics | gradient] of the step (worker/vector/update.h), in device memory, valid until the next
  // call. Throws the exchange's exceptions.
  float* run(const StepPlan& plan, const float* weights, const std::optional<StepPlan>& next = {});

  // GradientExchange::end().
  void end() { all_reduce_.end(); }

  // What only the exchange knows of the steps' times.
  void complete(StepTimes* times) const { all_reduce_.complete(times); }

  // Computes the step's microbatches again, with the same weights: returns the first whose loss or gradient
  // is not finite, the same on every rank; nothing if each by itself is finite. Called by all ranks, after
  // run().
  std::optional<std::int64_t> first_not_finite(const float* weights);

 private:
  void run_leaves(Lane& lane, int lane_index, const float* weights, std::int64_t end);
  void run_in_lock_step(const float* weights);
  void run_leaf(Lane& lane, int lane_index, std::int64_t leaf);
  void prepare(Lane& lane, const StepPlan& next);
  MicrobatchKey key_of(const StepPlan& plan, std::int64_t leaf) const;
  Microbatch microbatch_of(const StepPlan& plan, std::int64_t leaf, MicrobatchInput& input);
  std::vector<std::uint32_t> samples_of(const StepPlan& plan, std::int64_t leaf) const;

  const TrainConfig& config_;
  const Program& program_;
  const Dataset& data_;
  ProcessGroup& group_;
  Device& device_;
  Arithmetic& arithmetic_;
  LaneTeam& lanes_;
  StepClock& clock_;
  const std::size_t size_;  // floats of a microbatch's or a step's [statistics | gradient]

  TreeAllReduce all_reduce_;
  std::optional<LockStep> lock_step_;            // where batch norms are made over several microbatches
  std::vector<MicrobatchInput> inputs_;          // [lane]
  std::vector<StepClock::LaneTime> lane_times_;  // [lane]: of this step

  StepPlan plan_;
  std::int64_t order_epoch_ = -1;
  EpochOrder order_;                        // of order_epoch_
  std::atomic<std::int64_t> next_leaf_{0};  // lanes take leaves in ascending order
};

}  // namespace dtrun::worker
