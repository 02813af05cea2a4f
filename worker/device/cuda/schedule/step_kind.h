// What people call a step of a schedule. Pure.
#pragma once

#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/op_timer.h"

namespace dtrun::worker::cuda {

// `again`: it recomputes in backward what forward did not keep.
OpKind kind_of(const Program& program, const Step& step, bool again);

}  // namespace dtrun::worker::cuda
