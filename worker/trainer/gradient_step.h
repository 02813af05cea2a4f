// One step's mean gradient: the lanes run this worker's microbatches, their gradients meet in the fixed tree,
// the other workers' partial sums come in while backward still runs. What it returns is the same bits on
// every rank, for any number of ranks and lanes. The trainer applies it.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/collective/collective.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/config/config.h"
#include "worker/core/sampler.h"
#include "worker/data/dataset.h"
#include "worker/model/network.h"
#include "worker/reduction/accumulator.h"
#include "worker/trainer/lane_team.h"
#include "worker/trainer/microbatch_input.h"
#include "worker/trainer/step_clock.h"

namespace dtrun::worker {

// Sums over the step's samples.
struct StepStats {
  double loss = 0, correct = 0, samples = 0;
  StepStats& operator+=(const StepStats& other) {
    loss += other.loss, correct += other.correct, samples += other.samples;
    return *this;
  }
};

// For people and metrics. NaN is always the same NaN: its sign bit says nothing, but would be printed.
inline double mean(double sum, double samples) {
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum / samples;
}

class GradientStep {
 public:
  // All references must outlive this.
  GradientStep(const TrainConfig& config, const Network& network, const Dataset& data, Collective& collective,
               LaneTeam& lanes, StepClock& clock);

  // `order`: the epoch's samples. `parameters`: the values to compute with. The mean gradient is in
  // gradient() until the next call.
  StepStats run(const StepPlan& plan, std::span<const std::uint32_t> order,
                std::span<const float> parameters);
  std::span<float> gradient() { return {sum_.data() + kStatFloats, network_.size}; }

 private:
  // The statistics ride in front of the gradient, as part of its last bucket: they are summed in the same
  // tree and cost no message of their own. 16 floats keep the gradient 64-byte aligned.
  static constexpr std::size_t kStatFloats = 16;

  static std::vector<VectorRange> ranges_of(const Network& network);
  void run_leaf(Lane& lane, int lane_index, std::int64_t leaf);
  std::span<const std::uint32_t> samples_of(std::int64_t leaf) const;

  const TrainConfig& config_;
  const Network& network_;
  Collective& collective_;
  LaneTeam& lanes_;
  StepClock& clock_;

  // Declared in this order because what is in flight must be given up before the memory it points to.
  Buffer sum_;  // [kStatFloats + network.size]
  std::unique_ptr<TreeAccumulator> accumulator_;
  std::unique_ptr<GradientExchange> exchange_;
  std::vector<MicrobatchInput> inputs_;  // [lane]

  StepPlan plan_;
  std::span<const std::uint32_t> order_;
  std::atomic<std::int64_t> next_leaf_{0};  // lanes take leaves in ascending order
};

}  // namespace dtrun::worker
