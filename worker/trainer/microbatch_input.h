// The memory in which one lane's microbatches are laid out, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/device/device.h"

namespace dtrun::worker {

class MicrobatchInput {
 public:
  // `capacity`: rows of a microbatch. `data` must outlive this.
  MicrobatchInput(const Dataset& data, int capacity)
      : data_(data), x_(capacity * data.shape().size()), labels_(capacity) {}

  // A microbatch of these samples, at most `capacity`; the rest of it is zero. Good until the next call.
  Microbatch fill(std::span<const std::uint32_t> samples) {
    data_.fill(samples, x_.data(), labels_.data());
    std::fill(x_.begin() + samples.size() * data_.shape().size(), x_.end(), 0.0f);
    std::fill(labels_.begin() + samples.size(), labels_.end(), 0);
    return {.samples = static_cast<int>(samples.size()), .x = x_.data(), .labels = labels_.data()};
  }

 private:
  const Dataset& data_;
  std::vector<float> x_;              // [capacity, sample shape]
  std::vector<std::int32_t> labels_;  // [capacity]
};

}  // namespace dtrun::worker
