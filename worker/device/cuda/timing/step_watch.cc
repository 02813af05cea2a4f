#include "worker/device/cuda/timing/step_watch.h"

#include "worker/schedule/step_kind.h"

namespace dtrun::worker::cuda {

StepWatch::StepWatch(const Program& program, EventTimer& timer) : program_(program), timer_(timer) {}

const StepWatch::Watched& StepWatch::watched(const Step& step) {
  const auto [found, is_new] = watched_.try_emplace(&step);
  if (is_new) {
    const TimedOp op = timed_op(program_, step);
    found->second = {.op = op, .name = op.kind.what + ", " + op.kind.part};
  }
  return found->second;
}

// Ready and Join enqueue nothing: the exchange times its own work on a bucket.
void StepWatch::Scope::begin(StepWatch& watch, const Step& step, const CudaStream& stream) {
  if (!is_work(step)) return;
  const Watched& watched = watch.watched(step);
  range_.emplace(watched.name.c_str());
  timed_.emplace(watch.timer_, stream, [&]() -> const TimedOp& { return watched.op; });
}

}  // namespace dtrun::worker::cuda
