// A CUDA graph: recorded work that is enqueued again by one call. A GPU starts the kernels of a graph faster
// than a host can launch them.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept;
  CudaGraph& operator=(CudaGraph&& other) noexcept;

  // Records, without running it, the work that `enqueue` enqueues on `stream`, and on other streams that
  // begin by waiting for `stream` and that `stream` waits for at the end. Kernels' arguments are fixed:
  // values that differ from launch to launch must be in the memory that arguments point to. Returns an empty
  // graph, and the reason in `why`, if CUDA or a library cannot record the work.
  static CudaGraph record(CudaStream& stream, const std::function<void()>& enqueue, std::string* why);

  explicit operator bool() const { return graph_ != nullptr; }
  // REQUIRES: the graph is not empty. Its memory is used when the launched work runs.
  void launch(CudaStream& stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace dtrun::worker::cuda
