#include "worker/device/cuda/lane/graph.h"

#include <utility>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {

CudaGraph::~CudaGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}
CudaGraph::CudaGraph(CudaGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

CudaGraph CudaGraph::record(CudaStream& stream, const std::function<void()>& enqueue, std::string* why) {
  why->clear();
  // Thread-local: other threads, such as the exchange's, may make any calls meanwhile.
  check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "recording a graph");
  try {
    enqueue();
  } catch (const WorkerError& error) {
    *why = error.what();
  }
  cudaGraph_t recorded = nullptr;
  cudaError_t result = cudaStreamEndCapture(stream.handle(), &recorded);
  CudaGraph graph;
  if (result == cudaSuccess && why->empty()) result = cudaGraphInstantiate(&graph.graph_, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  if (result != cudaSuccess && why->empty()) *why = cudaGetErrorString(result);
  // Clears the error of the recording, which must not be reported by later calls. A failed GPU fails again.
  if (!why->empty()) cudaGetLastError();
  return graph;
}

void CudaGraph::launch(CudaStream& stream) const {
  check(cudaGraphLaunch(graph_, stream.handle()), "launching a graph");
}

}  // namespace dtrun::worker::cuda
