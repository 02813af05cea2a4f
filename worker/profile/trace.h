// The times of a profile as a trace for chrome://tracing and ui.perfetto.dev. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/device/op_timer.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// The times of each stream, from the first step on, beside the steps: those of step i are
// times.times[steps[i - 1]] .. times.times[steps[i] - 1].
std::string chrome_trace(const Program& program, const OpTimes& times, std::span<const std::size_t> steps);

}  // namespace dtrun::worker
