// A lane's graphs: a microbatch is enqueued step by step the first time that its results go to some memory,
// the second time that is recorded, and launched in one go from then on.
#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "worker/device/cuda/lane/graph.h"
#include "worker/device/cuda/stream.h"
#include "worker/device/cuda/use.h"

namespace dtrun::worker::cuda {

class MicrobatchGraphs {
 public:
  // `use` is told whether graphs are launched, and if not, why. Both must outlive this.
  MicrobatchGraphs(CudaStream& stream, UseRecord& use);

  // Launches the microbatch's graph on the stream. False if there is none: the caller enqueues step by step.
  // `out`: the memory that results go to. `enqueue`: enqueues all steps to be recorded, maybe more than once.
  bool launch(const float* out, const std::function<void()>& enqueue);
  // Forgets all graphs: their steps name memory that is no longer used. REQUIRES: none of them runs.
  void clear() { graphs_.clear(); }

 private:
  // More than the levels of any tree of leaves: results go to some buffers in turn.
  static constexpr std::size_t kMost = 64;

  const Graph* graph_of(const float* out, const std::function<void()>& enqueue);

  CudaStream& stream_;
  UseRecord& use_;
  bool wanted_;
  std::map<const float*, Graph> graphs_;  // by `out`; an empty one of memory that was used once
};

}  // namespace dtrun::worker::cuda
