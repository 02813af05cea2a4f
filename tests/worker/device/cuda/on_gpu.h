// A lane of a GPU, real or not, for tests of it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "worker/device/cuda_device.h"

namespace dtrun::worker {

struct LaneResult {
  MicrobatchStats stats;
  std::vector<float> gradient;
  std::vector<int> buckets;  // as they were told of
};

// A lane, and its data in device memory.
class OnGpu {
 public:
  OnGpu(const Program& program, int capacity, const CudaLaunches& launches = {})
      : device_(make_cuda_device(0, {}, launches)),
        program_(program),
        parameters_(arithmetic().allocate(Where::kDevice, program.size)),
        out_(arithmetic().allocate(Where::kDevice, kStatisticsFloats + program.size)),
        when_told_(arithmetic().allocate(Where::kDevice, out_.size())),
        lane_(device_->make_lane(program, capacity)) {}

  void load(const std::vector<float>& parameters) {
    arithmetic().copy(lane_->stream(), parameters_.data(), parameters.data(), parameters.size());
    lane_->stream().wait();
    lane_->parameters_changed(parameters_.data());
  }

  // Into the same memory each time: from the third time on a graph is launched.
  LaneResult train(const Microbatch& microbatch) {
    // Each number must be written.
    std::vector<float> host(out_.size(), std::numeric_limits<float>::quiet_NaN());
    arithmetic().copy(lane_->stream(), out_.data(), host.data(), host.size());
    lane_->stream().wait();  // train() may throw
    LaneResult outcome;
    lane_->train(microbatch, out_.data(), [&](int bucket) {
      outcome.buckets.push_back(bucket);
      const VectorRange& range = program_.buckets[static_cast<std::size_t>(bucket)];
      const std::size_t begin = kStatisticsFloats + range.begin;
      arithmetic().copy(lane_->gradients(), when_told_.data() + begin, out_.data() + begin, range.size());
    });
    arithmetic().copy(lane_->stream(), host.data(), out_.data(), host.size());
    lane_->stream().wait();
    std::vector<float> told(host.begin(), host.end());
    arithmetic().copy(lane_->gradients(), told.data(), when_told_.data(), told.size());
    lane_->gradients().wait();
    // The values at the notice of each bucket, beside the rest of backward.
    CHECK(std::memcmp(told.data() + kStatisticsFloats, host.data() + kStatisticsFloats,
                      program_.size * sizeof(float)) == 0);
    CHECK(host[2] == microbatch.samples * program_.sample.targets);
    CHECK(std::all_of(host.begin() + 3, host.begin() + kStatisticsFloats, [](float v) { return v == 0; }));
    outcome.stats = {.loss = host[0], .correct = host[1]};
    outcome.gradient.assign(host.begin() + kStatisticsFloats, host.end());
    return outcome;
  }

  Lane& lane() { return *lane_; }
  Arithmetic& arithmetic() { return device_->arithmetic(); }
  OpTimer& timer() { return device_->timer(); }
  DeviceUse use() const { return device_->use(); }

 private:
  const std::unique_ptr<Device> device_;
  const Program program_;
  const Buffer parameters_, out_, when_told_;
  const std::unique_ptr<Lane> lane_;
};

inline bool same_bits(const LaneResult& a, const LaneResult& b) {
  return std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.gradient.size() == b.gradient.size() &&
         std::memcmp(a.gradient.data(), b.gradient.data(), a.gradient.size() * sizeof(float)) == 0;
}

}  // namespace dtrun::worker
