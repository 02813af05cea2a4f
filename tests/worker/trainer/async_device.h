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
  AsyncLane(AsyncArithmetic& device, Device& cpu, const Program& program, int capacity)
      : device_(device),
        program_(program),
        capacity_(capacity),
        result_(kStatisticsFloats + program.size),
        stream_(device.make_stream()),
        gradients_(device.make_stream()) {
    do_now([&] { lane_ = cpu.make_lane(program, capacity); });
  }
  ~AsyncLane() override {
    stream_->wait();
    gradients_->wait();
  }

  Stream& stream() override { return *stream_; }
  Stream& gradients() override { return *gradients_; }

  void parameters_changed(const float* weights) override {
    device_.enqueue(*stream_, [=, this] { lane_->parameters_changed(device_.behind(weights)); });
  }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    device_.enqueue(*stream_, [this, batch = Batch(microbatch, program_, capacity_)] {
      lane_->train(batch.view(), result_.data(), [](int) {});
    });
    for (std::size_t bucket = 0; bucket < program_.buckets.size(); ++bucket) {
      const VectorRange& range = program_.buckets[bucket];
      give(kStatisticsFloats + range.begin, range.size(), out);
      if (bucket + 1 == program_.buckets.size()) give(0, kStatisticsFloats, out);
      gradients_->after(stream_->record());
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
    Batch(const Microbatch& from, const Program& program, int capacity)
        : samples(from.samples),
          key(from.key),
          targets(from.targets, from.targets + capacity * program.sample.targets) {
      const std::size_t size = capacity * program.sample.shape.size();
      if (program.sample.input == SampleSpec::Input::kValues) values.assign(from.values, from.values + size);
      if (program.sample.input == SampleSpec::Input::kTokens) tokens.assign(from.tokens, from.tokens + size);
    }
    Microbatch view() const {
      return {.samples = samples,
              .values = values.data(),
              .tokens = tokens.data(),
              .targets = targets.data(),
              .key = key};
    }
    int samples;
    MicrobatchKey key;
    std::vector<float> values;
    std::vector<std::int32_t> tokens, targets;
  };

  void give(std::size_t begin, std::size_t floats, float* out) {
    device_.copy(*stream_, out + begin, result_.data() + begin, floats);
  }
  void do_now(std::function<void()> work) {
    device_.enqueue(*stream_, std::move(work));
    stream_->wait();
  }

  AsyncArithmetic& device_;
  const Program program_;
  const int capacity_;
  std::unique_ptr<Lane> lane_;  // the stream's thread's
  std::vector<float> result_;   // the stream's thread's; as Lane::train's `out`
  const std::unique_ptr<Stream> stream_, gradients_;
};

class AsyncDevice final : public Device {
 public:
  explicit AsyncDevice(unsigned seed) : arithmetic_(seed) {}
  std::string fingerprint() const override { return "asynchronous"; }
  Arithmetic& arithmetic() override { return arithmetic_; }
  OpTimer& timer() override { return cpu_->timer(); }
  std::unique_ptr<Lane> make_lane(const Program& program, int capacity) override {
    return std::make_unique<AsyncLane>(arithmetic_, *cpu_, program, capacity);
  }

 private:
  AsyncArithmetic arithmetic_;
  const std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace dtrun::worker
