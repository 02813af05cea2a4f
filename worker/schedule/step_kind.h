// Names the steps of a schedule for people. Pure.
#pragma once

#include "worker/schedule/op_kind.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::schedule {

// `again`: the step recomputes in backward a value that forward did not keep.
OpKind kind_of(const Program& program, const Step& step, bool again);

}  // namespace dtrun::worker::schedule
