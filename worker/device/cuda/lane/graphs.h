// A lane's graphs, one for each memory of parameters and of results: the first microbatch for a memory is
// enqueued step by step, the second is recorded, and all from then on are launched by one call.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

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
  // Steps read these from now on: parameters, and what is multiplied by. Local replicas come back in turns,
  // but if there are too many of them, or their memory was freed, all graphs are forgotten. REQUIRES: no
  // graph is running.
  using Weights = std::pair<const float*, const void*>;
  void parameters_changed(const Weights& weights);

 private:
  // More than the levels of any tree of leaves: results go to some buffers in turn.
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kMostWeights = 8;
  using ByResult = std::map<const float*, CudaGraph>;  // empty for memory that was used once

  const CudaGraph* graph_of(const float* out, const std::function<void()>& enqueue);

  CudaStream& stream_;
  UseRecord& use_;
  bool wanted_;
  std::map<Weights, ByResult> all_;
  ByResult* graphs_ = nullptr;  // those of the present weights
};

}  // namespace dtrun::worker::cuda
