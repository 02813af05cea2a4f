// The memory for one lane's microbatches, one after the other.
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
      : data_(data),
        spec_(data.spec()),
        values_(spec_.input == SampleSpec::Input::kValues ? capacity * spec_.shape.size() : 0),
        tokens_(spec_.input == SampleSpec::Input::kTokens ? capacity * spec_.shape.size() : 0),
        targets_(static_cast<std::size_t>(capacity) * spec_.targets) {}

  // A microbatch of these samples, at most `capacity`; the rest of it is zero. Valid until the next call.
  Microbatch fill(std::span<const std::uint32_t> samples, const MicrobatchKey& key = {}) {
    const SampleRows rows{.values = values_.data(), .tokens = tokens_.data(), .targets = targets_.data()};
    data_.fill(samples, rows);
    data_.augment(samples, {.seed = key.seed, .epoch = key.epoch}, rows);
    const auto clear_rest = [&](auto& rows, std::size_t width) {
      if (!rows.empty()) std::fill(rows.begin() + samples.size() * width, rows.end(), 0);
    };
    clear_rest(values_, spec_.shape.size());
    clear_rest(tokens_, spec_.shape.size());
    clear_rest(targets_, spec_.targets);
    return {.samples = static_cast<int>(samples.size()),
            .values = values_.data(),
            .tokens = tokens_.data(),
            .targets = targets_.data(),
            .key = key};
  }

 private:
  const Dataset& data_;
  const SampleSpec spec_;
  std::vector<float> values_;          // [capacity, sample shape], or none
  std::vector<std::int32_t> tokens_;   // [capacity, length], or none
  std::vector<std::int32_t> targets_;  // [capacity, targets]
};

}  // namespace dtrun::worker
