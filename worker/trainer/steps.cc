#include "worker/trainer/steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/base/operation_log.h"
#include "worker/base/stop_point.h"
#include "worker/core/local_replicas.h"
#include "worker/optim/learning_rate.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/divergence.h"

namespace dtrun::worker {

Steps::Steps(Replica& replica, LocalReplicas* local, const RankInGeneration& place, ProcessGroup& group,
             const BatchSampler& batches, StepClock& clock, StopVote& vote, std::function<Vote()> wish)
    : replica_(replica),
      train_(replica.config.train),
      generation_(place.generation),
      batches_(batches),
      clock_(clock),
      vote_(vote),
      wish_(std::move(wish)),
      local_(local),
      group_(local != nullptr ? local->group() : group),
      gradient_(train_, replica.program, *replica.data.train, group_, *replica.device, replica.lanes, clock) {
}

std::int64_t Steps::next() const {
  return next_sync(replica_.state.step, train_.steps_between_syncs(), batches_.total_steps());
}

Steps::Made Steps::run(bool norm_wanted) { return local_ != nullptr ? steps_to(next()) : step(norm_wanted); }

void Steps::end() {
  gradient_.end();
  if (local_ != nullptr) local_->end();
}

std::optional<StepPlan> Steps::step_behind(const StepPlan& plan) const {
  if (replica_.state.step + 1 >= batches_.total_steps()) return std::nullopt;
  const StepPlan next = batches_.step(replica_.state.step + 1);
  return next.epoch == plan.epoch ? std::optional(next) : std::nullopt;
}

UpdateRule Steps::rule_of(std::int64_t step, bool norm_wanted) const {
  UpdateRule rule = update_rule(train_, step, learning_rate_at(train_, step, batches_.total_steps()));
  rule.norm_wanted = norm_wanted;
  rule.finite_only = train_.on_divergence == DivergenceAction::kStop;
  return rule;
}

StepResult Steps::make(std::int64_t number, const StepPlan& plan, const float* weights,
                       const std::optional<StepPlan>& behind,
                       const std::function<StepResult(float*)>& update) {
  OperationLog::at(generation_, number);
  float* const sum = gradient_.run(plan, weights, behind);
  stop_point(StopPoint::kExchanged);
  if (replica_.in_memory_checkpoint) replica_.in_memory_checkpoint->wait();
  const StepResult result = [&] {
    StepClock::Scope timed(clock_, StepClock::kMath);
    return update(sum);
  }();
  if (result.applied) return result;
  meet_at_fault();
  throw divergence(number, plan, result, sum, weights);
}

Steps::Made Steps::step(bool norm_wanted) {
  vote_.cast(wish_());
  const std::int64_t number = replica_.state.step;
  const StepPlan plan = batches_.step(number);
  const StepResult made =
      make(number, plan, replica_.state.parameters.data(), step_behind(plan),
           [&](float* sum) { return replica_.update(rule_of(number, norm_wanted), sum); });
  return {.stats = made.stats, .norm = made.norm};
}

// The steps of this rank's replicas up to a sync, in turns, and the sync.
Steps::Made Steps::steps_to(std::int64_t sync) {
  for (std::int64_t number = replica_.state.step; number < sync; ++number) {
    const UpdateRule rule = rule_of(number, false);
    for (LocalReplica& one : local_->own()) {
      const StepPlan plan =
          part_of_replica(batches_.step(number), one.number, train_.local_replicas, train_.micro_batch_size);
      if (plan.leaves == 0) continue;
      one.stats += make(number, plan, one.parameters.data(), {}, [&](float* sum) {
                     return one.update(replica_, rule, sum);
                   }).stats;
    }
  }
  vote_.cast(wish_());
  const StepResult made = local_->sync();
  return {.stats = made.stats, .norm = made.norm};
}

// All ranks of the group find the fault. The first one's end would have the others leave their step, and keep
// it to themselves, so none goes before all are here. No message may be under way then.
void Steps::meet_at_fault() {
  try {
    if (local_ == nullptr) vote_.result();
    group_.barrier();
  } catch (const WorkerError&) {  // a peer was lost meanwhile; the fault is there all the same
  }
}

// The error that all ranks end with. The step was not made, so its microbatches can be computed again.
WorkerError Steps::divergence(std::int64_t number, const StepPlan& plan, const StepResult& step,
                              const float* sum, const float* weights) {
  const auto on_host = [this](const float* vector) {
    std::vector<float> values(replica_.program.size);
    replica_.device->arithmetic().copy(*replica_.stream, values.data(), vector, values.size());
    replica_.stream->wait();
    return values;
  };
  const std::vector<float> gradient = on_host(sum + kStatisticsFloats);
  const std::optional<std::int64_t> leaf = gradient_.first_not_finite(weights);
  return diverged({.program = replica_.program,
                   .step = number + 1,
                   .loss = step.stats.loss,
                   .parameters = on_host(weights),
                   .gradient = gradient,
                   .leaf = leaf,
                   .leaves = plan.leaves});
}

}  // namespace dtrun::worker
