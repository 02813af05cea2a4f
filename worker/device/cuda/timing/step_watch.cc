#include "worker/device/cuda/timing/step_watch.h"

#include <algorithm>
#include <functional>

#include "worker/schedule/cost.h"
#include "worker/schedule/step_kind.h"

namespace dtrun::worker::cuda {

StepWatch::StepWatch(const Program& program, const Schedule& schedule, EventTimer& timer)
    : program_(program), schedule_(schedule), timer_(timer) {}

const StepWatch::Watched& StepWatch::watched(const Step& step) {
  const auto [found, is_new] = watched_.try_emplace(&step);
  if (is_new) {
    const std::vector<Step>& backward = schedule_.backward;
    const std::less<const Step*> before;
    const bool in_backward =
        !before(&step, backward.data()) && before(&step, backward.data() + backward.size());
    const OpKind kind = kind_of(program_, step, in_backward && !step.backward);
    found->second = {.op = {.kind = kind, .node = step.node, .cost = cost_of(step)},
                     .name = kind.what + ", " + kind.part};
  }
  return found->second;
}

// Ready and Join enqueue nothing: the exchange times its own work on a bucket.
void StepWatch::Scope::begin(StepWatch& watch, const Step& step, const CudaStream& stream) {
  if (std::holds_alternative<Ready>(step.work) || std::holds_alternative<Join>(step.work)) return;
  const Watched& watched = watch.watched(step);
  range_.emplace(watched.name.c_str());
  timed_.emplace(watch.timer_, stream, [&]() -> const TimedOp& { return watched.op; });
}

}  // namespace dtrun::worker::cuda
