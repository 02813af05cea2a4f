// How long work takes on a GPU, by CUDA's events.
#pragma once

#include <functional>
#include <vector>

#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

// Microseconds that one call takes on the stream, if `times` of them are enqueued one after another.
using Timer = std::function<double(CudaStream& stream, int times, const std::function<void()>& enqueue)>;

// The timer of AlgorithmSearch and trials. Work that `enqueue` starts on other streams counts as far as
// `stream` waits for it.
double by_events(CudaStream& stream, int times, const std::function<void()>& enqueue);

// One of several ways of doing something. `prepare`: before each measurement; it takes no part in it.
struct Way {
  std::function<void()> enqueue;
  std::function<void()> prepare = [] {};
};

// Microseconds of each: medians over rounds that have all of them, since what changes with time changes for
// all.
std::vector<double> medians_by_turns(CudaStream& stream, const Timer& timer, const std::vector<Way>& ways);

}  // namespace dtrun::worker::cuda
