#include "worker/device/cuda/lane/graphs.h"

#include <string>

#include "worker/device/cuda/kernels/launches.h"

namespace dtrun::worker::cuda {

MicrobatchGraphs::MicrobatchGraphs(CudaStream& stream, bool wanted, UseRecord& use)
    : stream_(stream), use_(use), wanted_(wanted) {
  parameters_changed({});
  use_.set("graphs", wanted_ ? "not launched yet" : "switched off");
}

void MicrobatchGraphs::parameters_changed(const Weights& weights) {
  if (all_.size() == kMostWeights && !all_.contains(weights)) all_.clear();
  graphs_ = &all_[weights];
}

bool MicrobatchGraphs::launch(const float* out, const std::function<void()>& enqueue) {
  const CudaGraph* const graph = wanted_ ? graph_of(out, enqueue) : nullptr;
  if (graph == nullptr) return false;
  graph->launch(stream_);
  use_.set("graphs", "used");
  return true;
}

const CudaGraph* MicrobatchGraphs::graph_of(const float* out, const std::function<void()>& enqueue) {
  const auto found = graphs_->find(out);
  if (found == graphs_->end()) {
    if (graphs_->size() < kMost) graphs_->try_emplace(out);
    return nullptr;
  }
  CudaGraph& graph = found->second;
  if (graph) return &graph;
  std::string why;
  graph = CudaGraph::record(stream_, enqueue, &why);
  if (!graph && programmatic_launches()) {
    launch_one_by_one();
    const std::string first = why;
    graph = CudaGraph::record(stream_, enqueue, &why);
    if (graph)
      use_.fall_back(
          "kernels are launched one after the other, since they cannot be recorded as a graph otherwise: " +
          first);
    use_.set("programmatic_launches", why_not_programmatic());
  }
  if (graph) return &graph;
  wanted_ = false;
  use_.set("graphs", "none can be recorded");
  use_.fall_back("microbatches are launched kernel by kernel, since they cannot be recorded as a graph: " +
                 why);
  return nullptr;
}

}  // namespace dtrun::worker::cuda
