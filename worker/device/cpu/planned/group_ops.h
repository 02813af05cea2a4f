// The steps of a planned lane on values in groups of samples (Plan::group), by the loops of grouped/. Steps
// on each element need none of their own: a padded group is as many more elements.
#pragma once

#include <algorithm>
#include <cstddef>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/planned/lane_memory.h"

namespace dtrun::worker::planned {

class GroupOps {
 public:
  // `at` must outlive this.
  explicit GroupOps(const LaneMemory& at) : at_(at) {}

  // The samples, into the arena.
  void load_samples() const {
    const std::size_t values = at_.program().sample.shape.size();
    float* const to = at_.out({Space::kArena, at_.plan().value[0] * sizeof(float)});
    for (std::size_t n = 0; n < at_.samples(); n += grouped::kGroup)
      from_rows(n, values, at_.microbatch().values + n * values, to + n * values);
  }
  // A group's values from sample `first` on, as rows of samples to side by side. The padding becomes zeros.
  void from_rows(std::size_t first, std::size_t values, const float* rows, float* to) const {
    const auto real = static_cast<std::size_t>(at_.microbatch().samples) - first;
    k_.rows_to_group(static_cast<int>(std::min<std::size_t>(real, grouped::kGroup)), values, rows, to);
  }
  void to_rows(std::size_t values, const float* group, float* rows) const {
    k_.group_to_rows(static_cast<int>(values), group, rows);
  }

  void run(const Convolve& w) const {
    const grouped::ConvShape shape = conv_shape(w.shape);
    each_group(w.shape, [&](std::size_t from, std::size_t to) {
      k_.conv_forward(shape, at_.in(w.in) + from, at_.in(w.weight), at_.in(w.bias), w.relu,
                      at_.out(w.out) + to);
    });
  }
  void run(const ConvolveWeightGradient& w) const {
    k_.conv_backward_weights(conv_shape(w.shape), groups(), at_.in(w.in), at_.in(w.out_gradient),
                             at_.out(w.weight_gradient), at_.out(w.bias_gradient));
  }
  void run(const ConvolveInGradient& w) const {
    const grouped::ConvShape shape = conv_shape(w.shape);
    each_group(w.shape, [&](std::size_t from, std::size_t to) {
      k_.conv_backward_data(shape, at_.in(w.out_gradient) + to, at_.in(w.weight),
                            at_.out(w.in_gradient) + from);
    });
  }

  void run(const Pool& w) const {
    const grouped::PoolShape shape = pool_shape(w.shape);
    each_group(w.shape, [&](std::size_t from, std::size_t to) {
      k_.pool_forward(shape, at_.in(w.in) + from, at_.out(w.out) + to);
    });
  }
  void run(const PoolBackward& w) const {
    const grouped::PoolShape shape = pool_shape(w.shape);
    each_group(w.shape, [&](std::size_t from, std::size_t to) {
      k_.pool_backward(shape, at_.in(w.in) + from, at_.in(w.out) + to, at_.in(w.out_gradient) + to, w.relu,
                       at_.out(w.in_gradient) + from);
    });
  }

  // Of a linear layer, whose weight is [out, in]: its output, its input's gradient, or its parameters'.
  void run(const Matmul& w) const {
    const auto m = static_cast<int>(w.shape.m), n = static_cast<int>(w.shape.n),
               k = static_cast<int>(w.shape.k);
    if (w.c.space == Space::kGradient)
      return k_.linear_backward_weights({n, m}, groups(), at_.in(w.b), at_.in(w.a), at_.columns(),
                                        at_.out(w.c), at_.out(w.bias));
    each_group(k, n, [&](std::size_t from, std::size_t to) {
      const float* const x = at_.in(w.a) + from;
      float* const y = at_.out(w.c) + to;
      if (w.shape.b_transposed)
        k_.linear_forward({k, n}, x, at_.in(w.b), at_.in(w.bias), w.shape.epilogue == Epilogue::kBiasRelu, y);
      else
        k_.linear_backward_data({n, k}, x, at_.in(w.b), y);
    });
  }

 private:
  int groups() const { return static_cast<int>(at_.samples() / grouped::kGroup); }
  // Calls each(offset of the group in a value of `in_size` a sample, and in one of `out_size`).
  template <typename Each>
  void each_group(std::size_t in_size, std::size_t out_size, const Each& each) const {
    for (std::size_t n = 0; n < at_.samples(); n += grouped::kGroup) each(n * in_size, n * out_size);
  }
  template <typename Each>
  void each_group(const ImageShape& s, const Each& each) const {
    each_group(s.in_size(), s.out_size(), each);
  }
  static grouped::ConvShape conv_shape(const ImageShape& s) {
    return {s.in_channels, s.height, s.width, s.out_channels, s.out_height(), s.out_width(), s.kernel};
  }
  static grouped::PoolShape pool_shape(const ImageShape& s) {
    return {s.in_channels, s.height, s.width, s.out_height(), s.out_width(), s.kernel};
  }

  const LaneMemory& at_;
  const grouped::Kernels& k_ = grouped::kernels();
};

}  // namespace dtrun::worker::planned
