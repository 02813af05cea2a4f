// The steps of a schedule by their names, for all of this device.
#pragma once

#include "worker/schedule/schedule.h"

namespace dtrun::worker::cuda {
using namespace schedule;
}  // namespace dtrun::worker::cuda
