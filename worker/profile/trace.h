// What ran when, as chrome://tracing and ui.perfetto.dev show it. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/device/node_clock.h"
#include "worker/device/op_timer.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// What each lane did, from `start` on.
std::string chrome_trace(const Program& program, std::span<const std::vector<NodeTime>> lanes,
                         NodeTime::Clock::time_point start);

// What each stream of a device's lane did, from the first step on, next to the steps: the times of one lie
// before steps[i] of times.times, and behind steps[i - 1].
std::string chrome_trace(const Program& program, const OpTimes& times, std::span<const std::size_t> steps);

}  // namespace dtrun::worker
