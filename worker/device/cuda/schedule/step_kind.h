// Names the steps of a schedule for people. Pure.
#pragma once

#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/op_timer.h"

namespace dtrun::worker::cuda {

// `again`: the step recomputes in backward a value that forward did not keep.
OpKind kind_of(const Program& program, const Step& step, bool again);

}  // namespace dtrun::worker::cuda
