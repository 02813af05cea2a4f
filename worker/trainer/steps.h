// Makes a generation's steps: the mean gradient, then the update, as far as the next point at which all ranks
// have one state. That is each step, or with local replicas the next sync. A gradient that is not finite ends
// the job before it reaches the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "worker/base/error.h"
#include "worker/collective/process_group.h"
#include "worker/core/sampler.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/local_replicas.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/recovery/resume.h"
#include "worker/trainer/step_clock.h"
#include "worker/trainer/stop_vote.h"

namespace dtrun::worker {

class Steps {
 public:
  struct Made {
    StepStats stats;  // of the whole job
    double norm = 0;  // of the gradient, or of the outer one; 0 if not wanted
  };

  // Called by all ranks, which find each other. `local`: null unless the config has local
  // replicas. `wish`: this rank's vote. All that is referred to must outlive this.
  Steps(Replica& replica, LocalReplicas* local, const RankInGeneration& place, ProcessGroup& group,
        const BatchSampler& batches, StepClock& clock, StopVote& vote, std::function<Vote()> wish);

  // How many steps will be done after the next run(). REQUIRES: some are left.
  std::int64_t next() const;
  // Takes the replica's state there, but for state.step, which the caller counts. The vote was cast then, and
  // its result not read. Throws the exchange's exceptions, and WorkerError, kExitDataError, where the
  // training diverged.
  Made run(bool norm_wanted);

  void complete(StepTimes* times) const { gradient_.complete(times); }
  void end();  // GradientExchange::end()

 private:
  UpdateRule rule_of(std::int64_t step, bool norm_wanted) const;
  std::optional<StepPlan> step_behind(const StepPlan& plan) const;  // in the same epoch
  StepResult make(std::int64_t number, const StepPlan& plan, const float* weights,
                  const std::optional<StepPlan>& behind, const std::function<StepResult(float*)>& update);
  Made step(bool norm_wanted);
  Made steps_to(std::int64_t sync);
  void meet_at_fault();
  WorkerError divergence(std::int64_t number, const StepPlan& plan, const StepResult& step, const float* sum,
                         const float* weights);

  Replica& replica_;
  const TrainConfig& train_;
  const std::int64_t generation_;
  const BatchSampler& batches_;
  StepClock& clock_;
  StopVote& vote_;
  const std::function<Vote()> wish_;
  LocalReplicas* const local_;
  ProcessGroup& group_;  // the ranks that make a step together
  GradientStep gradient_;
};

}  // namespace dtrun::worker
