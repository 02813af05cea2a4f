// The program gpu_trials: parts of jobs tried out by themselves on a GPU.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tests/bench/event_timer.h"

namespace dtrun::worker::cuda {

//   gpu_trials repeats [--times N] [--seconds S] [--busy BYTES] CONFIG.json…
//   gpu_trials attention [--times N] [--seconds S] CONFIG.json…
//   gpu_trials weights [--seconds S] CONFIG.json…
// Prints a JSON object a line as soon as it is known: repeats.h, attention_ways.h and weight_ways.h describe
// it. After S seconds nothing more is begun, and the last line lists the parts left out. Exit code: 0, 77
// where there is no GPU, or the error's, which is the last line.
int run_trials(const std::vector<std::string>& arguments, std::ostream& out, const Timer& timer = by_events);

}  // namespace dtrun::worker::cuda
