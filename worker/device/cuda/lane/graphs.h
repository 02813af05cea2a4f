// A lane's graphs, one for each memory that results go to: the first microbatch for a memory is enqueued step
// by step, the second is recorded, and all from then on are launched by one call.
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
  // With `wanted` false launch() launches nothing. Records in `use` whether graphs are launched, or the
  // reason against it. REQUIRES: both references outlive this.
  MicrobatchGraphs(CudaStream& stream, bool wanted, UseRecord& use);

  // Launches the microbatch's graph on the stream. False if there is none: the caller enqueues step by step.
  // `out`: the memory that results go to. `enqueue`: enqueues all steps to be recorded, maybe more than once.
  bool launch(const float* out, const std::function<void()>& enqueue);
  // Forgets all graphs: their steps use memory that is no longer valid. REQUIRES: no graph is running.
  void clear() { graphs_.clear(); }

 private:
  // More than the levels of any tree of leaves: results go to some buffers in turn.
  static constexpr std::size_t kMost = 64;

  const CudaGraph* graph_of(const float* out, const std::function<void()>& enqueue);

  CudaStream& stream_;
  UseRecord& use_;
  bool wanted_;
  std::map<const float*, CudaGraph> graphs_;  // by `out`; empty for memory that was used once
};

}  // namespace dtrun::worker::cuda
