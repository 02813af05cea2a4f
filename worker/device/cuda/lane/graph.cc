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
  // Other threads may do as they like meanwhile, as those of the exchange do.
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
  // That it cannot be recorded is no fault of what follows. A GPU that failed fails again.
  if (!why->empty()) cudaGetLastError();
  return graph;
}

void Graph::launch(CudaStream& stream) const {
  check(cudaGraphLaunch(graph_, stream.handle()), "launching a graph");
}

}  // namespace dtrun::worker::cuda
