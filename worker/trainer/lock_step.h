// A step whose batch norms are made over several microbatches (train.batch_norm_group): the lanes take each
// of this worker's microbatches up to its next norm, the norms' sums meet in the fixed tree
// (core/group_sum.h), and the lanes go on. Layers are in order and no rank is more than one norm ahead, so
// nothing can wait in a ring; a lane's failure or a peer's loss ends the step as it does any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/core/tree.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/device/lane_team.h"
#include "worker/model/program.h"
#include "worker/trainer/microbatch_input.h"
#include "worker/trainer/step_clock.h"

namespace dtrun::worker {

class LockStep {
 public:
  // All references must outlive this. `lanes`: whose threads do the work.
  LockStep(const TrainConfig& config, const Program& program, const Dataset& data, ProcessGroup& group,
           Device& device, LaneTeam& lanes, StepClock& clock);

  // What a step knows of a leaf. Called on the lanes' threads.
  struct Step {
    std::int64_t leaves;
    const float* weights;
    std::function<Microbatch(std::int64_t leaf, MicrobatchInput& input)> microbatch;
    std::function<float*(std::int64_t leaf, Lane& lane)> out;      // Lane::begin()'s
    std::function<void(std::int64_t leaf, Lane& lane)> completed;  // the gradient
  };
  // All ranks call it. Throws the process group's exceptions, and the lanes'.
  void run(const Step& step);
  // Until the device has done what the lanes enqueued, maybe with what was enqueued behind the gradients.
  void wait(bool gradients_too);

 private:
  struct Leaf {
    std::unique_ptr<Lane> lane;  // keeps the microbatch's values from forward to backward
    MicrobatchInput input;
    std::span<double> sums;
  };
  void each_leaf(StepClock::Part part, const std::function<void(std::int64_t leaf, Leaf& at)>& work);
  void exchange(std::int64_t leaves, std::size_t width);

  const TrainConfig& config_;
  const Program& program_;
  const Dataset& data_;
  ProcessGroup& group_;
  Device& device_;
  LaneTeam& lanes_;
  StepClock& clock_;
  std::vector<std::size_t> widths_;  // of the sums of each norm of forward, and of backward
  std::vector<Leaf> leaves_;         // this worker's
  LeafRange own_;
};

}  // namespace dtrun::worker
