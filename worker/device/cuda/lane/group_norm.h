// Batch norms over the microbatches of several lanes in lock step (Lane::go_on): the sums that a lane hands
// in, and what it makes of those of all. Sums are [2][channels] and the number of values of a channel. The
// kernels are those of a microbatch by itself, launched twice: for its own moments, and with those of all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/batch_norm.h"
#include "worker/device/cuda/lane/memory.h"
#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

template <typename T>
class GroupNorm {
 public:
  // For the norms of this schedule. REQUIRES: `arithmetic` and `at` outlive this.
  GroupNorm(CudaArithmetic& arithmetic, const LaneMemory<T>& at, const Schedule& schedule)
      : arithmetic_(arithmetic), at_(at) {
    std::size_t most = 0;
    schedule.each_step([&](const Step& step) {
      if (const auto* const norm = std::get_if<BatchNormalize>(&step.work))
        most = std::max(most, norm->channels);
    });
    device_ = arithmetic.allocate(Where::kDevice, 2 * most);
    host_ = arithmetic.allocate(Where::kHost, 3 * most);
  }

  // The sums of a microbatch of so many samples for a norm's step. Waits for the stream.
  std::span<double> sums_of(const Work& work, std::size_t samples, CudaStream& on) {
    if (const auto* const forward = std::get_if<BatchNormalize>(&work)) return sums_of(*forward, samples, on);
    return sums_of(std::get<BatchNormalizeBackward>(work), samples, on);
  }
  // Enqueues the step, with the sums of all microbatches.
  void finish(const Work& work, CudaStream& on) {
    if (const auto* const forward = std::get_if<BatchNormalize>(&work)) return finish(*forward, on);
    finish(std::get<BatchNormalizeBackward>(work), on);
  }

 private:
  std::span<double> sums_of(const BatchNormalize& w, std::size_t samples, CudaStream& on) {
    resize(w, samples);
    normalize(w, true, at_.floats(w.mean), at_.floats(w.variance), on);
    const float* const moments = to_host(at_.floats(w.moments), 3 * w.channels, on);
    const double count = sums_.back();
    for (std::size_t c = 0; c < w.channels; ++c) {
      const double mean = moments[3 * c];
      sums_[c] = count * mean;
      sums_[w.channels + c] = count * (moments[3 * c + 2] + mean * mean);
    }
    return sums_;
  }
  void finish(const BatchNormalize& w, CudaStream& on) {
    float* const mean = host_.data();
    for (std::size_t c = 0; c < w.channels; ++c) {
      const double of_all = sums_[c] / sums_.back();
      const double variance = sums_[w.channels + c] / sums_.back() - of_all * of_all;
      mean[c] = static_cast<float>(of_all);
      mean[w.channels + c] = static_cast<float>(std::max(variance, 0.0));
    }
    arithmetic_.copy(on, device_.data(), mean, 2 * w.channels);
    normalize(w, false, device_.data(), device_.data() + w.channels, on);
  }
  void normalize(const BatchNormalize& w, bool by_own, const float* mean, const float* variance,
                 CudaStream& on) {
    batch_norm(on.handle(), {w.samples, w.channels, w.pixels}, at_.microbatch.real_rows, by_own, w.epsilon,
               at_.values(w.in), at_.floats(w.weight), at_.floats(w.bias), mean, variance,
               at_.floats(w.moments), at_.values(w.out));
    check_launch("batch_norm");
  }

  std::span<double> sums_of(const BatchNormalizeBackward& w, std::size_t samples, CudaStream& on) {
    resize(w, samples);
    float* const own = device_.data();
    backward(w, own + w.channels, own, false, nullptr, nullptr, on);
    const float* const sums = to_host(own, 2 * w.channels, on);
    std::copy_n(sums, 2 * w.channels, sums_.begin());
    return sums_;
  }
  void finish(const BatchNormalizeBackward& w, CudaStream& on) {
    for (std::size_t i = 0; i < 2 * w.channels; ++i)
      host_.data()[i] = static_cast<float>(sums_[i] / sums_.back());
    arithmetic_.copy(on, device_.data(), host_.data(), 2 * w.channels);
    backward(w, at_.floats(w.weight_gradient), at_.floats(w.bias_gradient), w.add_parameters,
             at_.values(w.in_gradient), device_.data(), on);
  }
  void backward(const BatchNormalizeBackward& w, float* weight_gradient, float* bias_gradient,
                bool add_parameters, T* in_gradient, const float* means, CudaStream& on) {
    batch_norm_backward(on.handle(), {w.samples, w.channels, w.pixels}, at_.microbatch.real_rows,
                        at_.values(w.in), at_.floats(w.weight), at_.floats(w.mean), at_.floats(w.moments),
                        at_.values(w.out_gradient), w.add, in_gradient, add_parameters, weight_gradient,
                        bias_gradient, at_.floats(w.sums), means);
    check_launch("batch_norm_backward");
  }

  void resize(const auto& w, std::size_t samples) {
    sums_.resize(2 * w.channels + 1);
    sums_.back() = static_cast<double>(samples * w.pixels);
  }
  const float* to_host(const float* from, std::size_t floats, CudaStream& on) {
    arithmetic_.copy(on, host_.data(), from, floats);
    on.wait();
    return host_.data();
  }

  CudaArithmetic& arithmetic_;
  const LaneMemory<T>& at_;
  std::vector<double> sums_;
  Buffer device_, host_;
};

}  // namespace dtrun::worker::cuda
