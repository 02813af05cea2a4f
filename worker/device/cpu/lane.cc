// The CPU device: a lane is a graph on the calling thread, plus the loss and the bucket notices.
#include "worker/device/cpu/lane.h"

#include <utility>
#include <vector>

#include "worker/device/cpu/loss.h"

namespace dtrun::worker {
namespace {

class CpuLane : public Lane {
 public:
  CpuLane(const Network& network, int capacity, std::unique_ptr<CpuGraph> graph)
      : classes_(network.classes),
        buckets_(network.buckets),
        logit_gradient_(static_cast<std::size_t>(capacity + kRowsAtOnce) * network.classes),
        graph_(std::move(graph)) {}

  void load_parameters(std::span<const float> flat) override { graph_->load_parameters(flat); }

  MicrobatchStats train(const Microbatch& microbatch, std::span<float> gradient,
                        const std::function<void(int bucket)>& ready) override {
    const auto logits = graph_->forward(microbatch.x, microbatch.samples);
    const auto stats =
        log_softmax_nll(logits, classes_, microbatch.labels, microbatch.samples, logit_gradient_);
    std::size_t next = 0;
    graph_->backward(logit_gradient_.data(), gradient.data(), [&](std::size_t offset) {
      for (; next < buckets_.size() && buckets_[next].begin >= offset; ++next) ready(static_cast<int>(next));
    });
    return stats;
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    const auto logits = graph_->forward(microbatch.x, microbatch.samples);
    return log_softmax_nll(logits, classes_, microbatch.labels, microbatch.samples, {});
  }

 private:
  static constexpr int kRowsAtOnce = 16;  // a graph may round its rows up to a multiple of this

  const int classes_;
  const std::vector<VectorRange> buckets_;
  std::vector<float> logit_gradient_;  // [rows, classes]
  const std::unique_ptr<CpuGraph> graph_;
};

// A group of 16 costs the same however few of its rows are real; oneDNN's time grows with the rows. For the
// convnet with AVX-512 they meet between 5 and 6 rows (0.7 ms); at 16 rows oneDNN takes 2.8 times as long,
// because its channel blocks of 16 fit 20 channels badly. A rule of the capacity alone, so every lane of a
// job decides alike.
constexpr int kRowsWorthAGroup = 6;

class CpuDevice : public Device {
 public:
  std::unique_ptr<Lane> make_lane(const Network& network, int capacity) override {
    auto graph = capacity >= kRowsWorthAGroup ? make_grouped_graph(network, capacity)
                                              : make_onednn_graph(network, capacity);
    return make_cpu_lane(network, capacity, std::move(graph));
  }
};

}  // namespace

std::unique_ptr<Lane> make_cpu_lane(const Network& network, int capacity, std::unique_ptr<CpuGraph> graph) {
  return std::make_unique<CpuLane>(network, capacity, std::move(graph));
}

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace dtrun::worker
