// Runs networks on an asynchronous device (tests/worker/vector/async_arithmetic.h): the CPU's lanes, each on
// its stream's thread, behind the host's back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/worker/vector/async_arithmetic.h"
#include "worker/device/device.h"

namespace dtrun::worker {

class AsyncLane final : public Lane {
 public:
  AsyncLane(AsyncArithmetic& device, Device& cpu, const Network& network, int capacity)
      : device_(device),
        network_(network),
        capacity_(capacity),
        result_(kStatisticsFloats + network.size),
        stream_(device.make_stream()) {
    do_now([&] { lane_ = cpu.make_lane(network, capacity); });
  }
  ~AsyncLane() override { stream_->wait(); }

  Stream& stream() override { return *stream_; }

  void weights_changed(const float* weights) override {
    device_.enqueue(*stream_, [=, this] { lane_->weights_changed(device_.behind(weights)); });
  }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    device_.enqueue(*stream_, [this, batch = Batch(microbatch, network_, capacity_)] {
      lane_->train(batch.view(), result_.data(), [](int) {});
    });
    for (std::size_t bucket = 0; bucket < network_.buckets.size(); ++bucket) {
      const VectorRange& range = network_.buckets[bucket];
      give(kStatisticsFloats + range.begin, range.size(), out);
      if (bucket + 1 == network_.buckets.size()) give(0, kStatisticsFloats, out);
      ready(static_cast<int>(bucket));
    }
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    MicrobatchStats stats;
    do_now([&] { stats = lane_->evaluate(microbatch); });
    return stats;
  }

 private:
  // The caller's microbatch may change before its turn comes.
  struct Batch {
    Batch(const Microbatch& from, const Network& network, int capacity)
        : samples(from.samples),
          x(from.x, from.x + capacity * network.input.size()),
          labels(from.labels, from.labels + capacity) {}
    Microbatch view() const { return {.samples = samples, .x = x.data(), .labels = labels.data()}; }
    int samples;
    std::vector<float> x;
    std::vector<std::int32_t> labels;
  };

  void give(std::size_t begin, std::size_t floats, float* out) {
    device_.copy(*stream_, out + begin, result_.data() + begin, floats);
  }
  void do_now(std::function<void()> work) {
    device_.enqueue(*stream_, std::move(work));
    stream_->wait();
  }

  AsyncArithmetic& device_;
  const Network network_;
  const int capacity_;
  std::unique_ptr<Lane> lane_;  // the stream's thread's
  std::vector<float> result_;   // likewise; as Lane::train's `out`
  const std::unique_ptr<Stream> stream_;
};

class AsyncDevice final : public Device {
 public:
  explicit AsyncDevice(unsigned seed) : arithmetic_(seed) {}
  Arithmetic& arithmetic() override { return arithmetic_; }
  std::unique_ptr<Lane> make_lane(const Network& network, int capacity) override {
    return std::make_unique<AsyncLane>(arithmetic_, *cpu_, network, capacity);
  }

 private:
  AsyncArithmetic arithmetic_;
  const std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace dtrun::worker
