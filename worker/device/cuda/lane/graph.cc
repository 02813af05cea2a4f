#include "worker/device/cuda/lane/graph.h"

#include <utility>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}
Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

Graph Graph::record(CudaStream& stream, const std::function<void()>& enqueue, std::string* why) {
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
  Graph graph;
  if (result == cudaSuccess && why->empty()) result = cudaGraphInstantiate(&graph.graph_, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  if (result != cudaSuccess && why->empty()) *why = cudaGetErrorString(result);
  // Clears the error of the recording, which must not be reported by later calls. A failed GPU fails again.
  if (!why->empty()) cudaGetLastError();
  return graph;
}

void Graph::launch(CudaStream& stream) const {
  check(cudaGraphLaunch(graph_, stream.handle()), "launching a graph");
}

}  // namespace dtrun::worker::cuda
