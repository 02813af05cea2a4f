// Work that was enqueued once and is enqueued again in one go: a CUDA graph. A GPU starts the kernels of a
// graph faster than a host can launch them.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  // What `enqueue` enqueues on `stream`, and on streams that wait for it there and for which it waits at the
  // end; none of it runs. Arguments of kernels are those of now: what may differ in the next launch must lie
  // in the memory that they name. Nothing, and `why`, if CUDA or a library cannot record it.
  static Graph record(CudaStream& stream, const std::function<void()>& enqueue, std::string* why);

  explicit operator bool() const { return graph_ != nullptr; }
  // REQUIRES: there is one. The memory it names is used when its turn comes.
  void launch(CudaStream& stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace dtrun::worker::cuda
