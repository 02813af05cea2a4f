// Batch norms over the microbatches of several lanes in lock step (Lane::go_on): the sums that a lane hands
// in, and what it makes of those of all. Sums are [2][channels] and the number of values of a channel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/lane_memory.h"

namespace dtrun::worker::planned {

class GroupNorm {
 public:
  // `at` must outlive this.
  explicit GroupNorm(const LaneMemory& at) : at_(at) {}

  // The microbatch's sums for a norm's step. Also adds what follows from them to the gradient: the running
  // statistics' sums, or the parameters' gradients.
  std::span<double> sums_of(const Work& work) {
    if (const auto* const forward = std::get_if<BatchNormalize>(&work)) return sums_of(*forward);
    return sums_of(std::get<BatchNormalizeBackward>(work));
  }

  // From the sums of all microbatches.
  void make_moments(const BatchNormalize& w) const {
    float* const moments = at_.out(w.moments);
    const double count = sums_[2 * w.channels];
    for (std::size_t c = 0; c < w.channels; ++c) {
      const double mean = sums_[c] / count;
      const auto variance = static_cast<float>(std::max(sums_[w.channels + c] / count - mean * mean, 0.0));
      moments[3 * c] = static_cast<float>(at_.in(w.mean)[c] + mean);
      moments[3 * c + 1] = 1 / std::sqrt(variance + w.epsilon);
      moments[3 * c + 2] = variance;
    }
  }
  void make_in_gradient(const BatchNormalizeBackward& w) {
    if (!w.in_gradient) return;
    means_.resize(2 * w.channels);
    for (std::size_t i = 0; i < means_.size(); ++i)
      means_[i] = static_cast<float>(sums_[i] / sums_[2 * w.channels]);
    k_.batch_in_gradient({w.samples, w.channels, w.pixels}, at_.in(w.in), at_.in(w.weight), at_.in(w.moments),
                         at_.in(w.out_gradient), means_.data(), w.add, at_.out(w.in_gradient));
  }

 private:
  std::span<double> sums_of(const BatchNormalize& w) {
    resize(w);
    k_.batch_sums({w.samples, w.channels, w.pixels}, at_.in(w.in), at_.in(w.mean), sums_.data());
    // Where the gradient of the running mean would be, and of the variance behind it.
    float* const running = at_.out({Space::kGradient, w.mean.offset});
    for (std::size_t i = 0; i < 2 * w.channels; ++i)
      running[i] = static_cast<float>(sums_[i] / static_cast<double>(w.pixels));
    return sums_;
  }
  std::span<double> sums_of(const BatchNormalizeBackward& w) {
    resize(w);
    k_.batch_gradient_sums({w.samples, w.channels, w.pixels}, at_.in(w.in), at_.in(w.moments),
                           at_.in(w.out_gradient), sums_.data());
    const auto put = [&](const Place& place, const double* sums) {
      float* const to = at_.out(place);
      for (std::size_t c = 0; c < w.channels; ++c)
        to[c] = (w.add_parameters ? to[c] : 0.0f) + static_cast<float>(sums[c]);
    };
    put(w.bias_gradient, sums_.data());
    put(w.weight_gradient, sums_.data() + w.channels);
    return sums_;
  }
  void resize(const auto& w) {
    sums_.resize(2 * w.channels + 1);
    sums_.back() = static_cast<double>(w.samples * w.pixels);
  }

  const LaneMemory& at_;
  const Kernels& k_ = kernels();
  std::vector<double> sums_;
  std::vector<float> means_;
};

}  // namespace dtrun::worker::planned
