// Adds timing events (event_timer.h) and a range (nvtx.h) around each step that a lane enqueues, for
// profiles. Without a profile a step costs two tests of a pointer.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/timing/event_timer.h"
#include "worker/device/cuda/timing/nvtx.h"

namespace dtrun::worker::cuda {

class StepWatch {
 public:
  // REQUIRES: the arguments outlive this.
  StepWatch(const Program& program, EventTimer& timer);

  // Lives while one step of the schedule is enqueued on `stream`.
  class Scope {
   public:
    Scope(StepWatch& watch, const Step& step, const CudaStream& stream) {
      if (watch.timer_.on() || nvtx::attached()) begin(watch, step, stream);
    }
    Scope(const Scope&) = delete;

   private:
    void begin(StepWatch& watch, const Step& step, const CudaStream& stream);
    std::optional<nvtx::Range> range_;
    std::optional<EventTimer::Scope> timed_;
  };

 private:
  struct Watched {
    TimedOp op;
    std::string name;
  };
  const Watched& watched(const Step& step);

  const Program& program_;
  EventTimer& timer_;
  std::map<const Step*, Watched> watched_;  // the steps enqueued so far
};

}  // namespace dtrun::worker::cuda
