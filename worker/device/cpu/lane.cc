// The CPU device: a lane is a graph on the calling thread, plus the loss and the bucket notices.
#include "worker/device/cpu/lane.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/error.h"
#include "worker/device/cpu/fingerprint.h"
#include "worker/device/cpu/footprint.h"
#include "worker/device/cpu/loss.h"
#include "worker/device/cpu/planned/lane.h"

namespace dtrun::worker {
namespace {

class CpuLane : public Lane {
 public:
  CpuLane(const Program& program, int capacity, std::unique_ptr<CpuGraph> graph)
      : classes_(program.sample.classes),
        label_smoothing_(program.label_smoothing),
        buckets_(program.buckets),
        logit_gradient_(static_cast<std::size_t>(capacity + kRowsAtOnce) * program.sample.classes),
        graph_(std::move(graph)) {}

  Stream& stream() override { return *stream_; }

  void parameters_changed(const float* weights) override { graph_->parameters_changed(weights); }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    const auto logits = graph_->forward(microbatch.values, microbatch.samples);
    const auto stats = log_softmax_nll(logits, classes_, microbatch.targets, microbatch.samples,
                                       logit_gradient_, label_smoothing_);
    std::fill_n(out, kStatisticsFloats, 0.0f);
    out[0] = stats.loss, out[1] = stats.correct, out[2] = static_cast<float>(microbatch.samples);
    std::size_t next = 0;
    graph_->backward(logit_gradient_.data(), out + kStatisticsFloats, [&](std::size_t offset) {
      for (; next < buckets_.size() && buckets_[next].begin >= offset; ++next) ready(static_cast<int>(next));
    });
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    const auto logits = graph_->forward(microbatch.values, microbatch.samples);
    return log_softmax_nll(logits, classes_, microbatch.targets, microbatch.samples, {}, label_smoothing_);
  }

 private:
  static constexpr int kRowsAtOnce = 16;  // a graph may round its rows up to a multiple of this

  const int classes_;
  const float label_smoothing_;
  const std::vector<VectorRange> buckets_;
  std::vector<float> logit_gradient_;  // [rows, classes]
  const std::unique_ptr<CpuGraph> graph_;
  const std::unique_ptr<Stream> stream_ = make_cpu_arithmetic()->make_stream();
};

class CpuDevice : public Device {
 public:
  std::string fingerprint() const override { return fingerprint_; }
  Arithmetic& arithmetic() override { return *arithmetic_; }
  OpTimer& timer() override { return *timer_; }
  std::unique_ptr<Lane> make_lane(const Program& program, int capacity) override {
    std::call_once(has_lane_, [&] { fingerprint_ = cpu_fingerprint(program, capacity); });
    const NodeClock clock = timer_->clock_of(program, capacity);
    if (cpu_layout(program, capacity) == CpuLayout::kPlanned)
      return make_planned_lane(program, capacity, clock);
    if (program.bf16) throw WorkerError(kExitSoftware, "operations on images have no bf16");
    return make_cpu_lane(program, capacity, make_grouped_graph(program, capacity, clock));
  }

 private:
  const std::unique_ptr<Arithmetic> arithmetic_ = make_cpu_arithmetic();
  const std::shared_ptr<NodeTimer> timer_ = std::make_shared<NodeTimer>();
  std::once_flag has_lane_;  // all lanes of a device run one program, so the first lane sets the fingerprint
  std::string fingerprint_ = "cpu";
};

}  // namespace

std::unique_ptr<Lane> make_cpu_lane(const Program& program, int capacity, std::unique_ptr<CpuGraph> graph) {
  return std::make_unique<CpuLane>(program, capacity, std::move(graph));
}

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace dtrun::worker
