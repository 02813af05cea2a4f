// Layer normalisation and its gradient against the definition in fp64.
#include "worker/device/cuda/kernels/norm.h"

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::norm_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

struct NormShape {
  std::size_t rows, width;
  std::size_t shift;  // of the activations, in elements
};
// Widths that take every path: single elements, packs that are kept or read again, sums in shared memory and
// in the workspace. With the most rows a warp has several.
constexpr NormShape kNormShapes[] = {{1, 1, 0},    {3, 3, 0},    {7, 64, 0},  {7, 64, 1},
                                     {9, 100, 0},  {70, 257, 0}, {5, 768, 0}, {3, 1600, 0},
                                     {2, 4096, 0}, {3, 6400, 0}, {4300, 8, 0}};
constexpr float kEpsilon = 1e-5f;

struct WantedNorm {
  std::vector<double> sum, moments, out;
};

template <typename T>
WantedNorm normalised(const NormShape& s, const std::vector<T>& left, const std::vector<T>* right,
                      const std::vector<float>& weight, const std::vector<float>& bias) {
  WantedNorm wanted;
  for (std::size_t r = 0; r < s.rows; ++r) {
    std::vector<double> x(s.width);
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < s.width; ++i) {
      const float one = value_of(left[r * s.width + i]);
      x[i] = right == nullptr ? one : value_of(T(one + value_of((*right)[r * s.width + i])));
      mean += x[i] / s.width;
    }
    for (const double value : x) square += (value - mean) * (value - mean) / s.width;
    const double scale = 1 / std::sqrt(square + kEpsilon);
    wanted.moments.insert(wanted.moments.end(), {mean, scale});
    for (std::size_t i = 0; i < s.width; ++i) {
      wanted.sum.push_back(x[i]);
      wanted.out.push_back((x[i] - mean) * scale * weight[i] + bias[i]);
    }
  }
  return wanted;
}

}  // namespace

TEST_CASE_TEMPLATE("a row is normalised, alone and after a residual addition", T, DTRUN_ACTIVATIONS) {
  for (const NormShape& s : kNormShapes) {
    CAPTURE(s.rows);
    CAPTURE(s.width);
    const std::size_t count = s.rows * s.width;
    const std::vector<T> left = random_values<T>(1, count, 3), right = random_values<T>(2, count);
    const std::vector<float> weight = random_values<float>(3, s.width),
                             bias = random_values<float>(4, s.width);
    const auto [moments, out] = in_all_orders([&] {
      const Memory<T> in(left, s.shift);
      const Memory<float> w(weight), b(bias);
      std::tuple all{Memory<float>(2 * s.rows), Memory<T>(count, s.shift)};
      cuda::layer_norm<T>(nullptr, s.rows, s.width, kEpsilon, in.data(), w.data(), b.data(),
                          std::get<0>(all).data(), std::get<1>(all).data());
      synchronize();
      return all;
    });
    const WantedNorm alone = normalised<T>(s, left, nullptr, weight, bias);
    check_near(moments, alone.moments, 2e-6);
    check_near(out, alone.out, 4e-6);

    const WantedNorm after = normalised<T>(s, left, &right, weight, bias);
    // The sum in its own memory, and where the operands lie.
    for (const int place : {0, 1, 2}) {
      CAPTURE(place);
      const auto [sum, again, normal] = in_all_orders([&] {
        Memory<T> a(left, s.shift), b(right, s.shift), own(count, s.shift);
        Memory<T>& to = place == 0 ? own : place == 1 ? a : b;
        Memory<T>& normal = place == 1 ? b : place == 2 ? a : own;
        Memory<T> separate(count, s.shift);
        const Memory<float> scale(weight), offset(bias);
        std::tuple all{Memory<T>(0), Memory<float>(2 * s.rows), Memory<T>(0)};
        cuda::residual_layer_norm<T>(nullptr, s.rows, s.width, kEpsilon, a.data(), b.data(), scale.data(),
                                     offset.data(), to.data(), std::get<1>(all).data(),
                                     place == 0 ? separate.data() : normal.data());
        synchronize();
        std::get<0>(all) = to, std::get<2>(all) = place == 0 ? separate : normal;
        return all;
      });
      check_near(sum, after.sum, 0);
      check_near(again, after.moments, 2e-6);
      check_near(normal, after.out, 4e-6);
    }
  }
}

TEST_CASE_TEMPLATE("the gradients of a normalisation, written and added", T, DTRUN_ACTIVATIONS) {
  for (const NormShape& s : kNormShapes)
    for (const bool add : {false, true}) {
      CAPTURE(s.rows);
      CAPTURE(s.width);
      CAPTURE(add);
      const std::size_t count = s.rows * s.width;
      const std::vector<T> x = random_values<T>(5, count, 3), d = random_values<T>(6, count),
                           old = random_values<T>(7, count);
      const std::vector<float> weight = random_values<float>(8, s.width), bias(s.width, 0.0f),
                               old_parameters = random_values<float>(9, s.width);
      const WantedNorm values = normalised<T>(s, x, nullptr, weight, bias);
      std::vector<float> moments(values.moments.begin(), values.moments.end());
      std::vector<double> d_in(count), d_weight(s.width), d_bias(s.width);
      for (std::size_t i = 0; i < s.width; ++i) d_weight[i] = d_bias[i] = add ? old_parameters[i] : 0.0;
      for (std::size_t r = 0; r < s.rows; ++r) {
        const double mean = moments[2 * r], scale = moments[2 * r + 1];
        const auto normal = [&](std::size_t i) { return (value_of(x[r * s.width + i]) - mean) * scale; };
        double mean_d = 0, mean_dx = 0;
        for (std::size_t i = 0; i < s.width; ++i) {
          const double gradient = value_of(d[r * s.width + i]);
          d_weight[i] += gradient * normal(i), d_bias[i] += gradient;
          mean_d += gradient * weight[i] / s.width, mean_dx += gradient * weight[i] * normal(i) / s.width;
        }
        for (std::size_t i = 0; i < s.width; ++i)
          d_in[r * s.width + i] =
              (add ? value_of(old[r * s.width + i]) : 0.0) +
              scale * (value_of(d[r * s.width + i]) * weight[i] - mean_d - normal(i) * mean_dx);
      }
      const std::size_t floats = cuda::layer_norm_backward_workspace(s.rows, s.width);
      const auto [in_gradient, weight_gradient, bias_gradient, workspace] = in_all_orders([&] {
        const Memory<T> in(x, s.shift), gradient(d, s.shift);
        const Memory<float> w(weight), m(moments);
        std::tuple all{add ? Memory<T>(old, s.shift) : Memory<T>(count, s.shift),
                       add ? Memory<float>(old_parameters, 1) : Memory<float>(s.width, 1),
                       add ? Memory<float>(old_parameters, 1) : Memory<float>(s.width, 1),
                       Memory<float>(floats)};
        cuda::layer_norm_backward<T>(nullptr, s.rows, s.width, in.data(), w.data(), m.data(), gradient.data(),
                                     add, std::get<0>(all).data(), add, std::get<1>(all).data(),
                                     std::get<2>(all).data(), std::get<3>(all).data());
        synchronize();
        return all;
      });
      const double scale = moments[1];  // for width 1 it is 1 / sqrt(epsilon)
      check_near(in_gradient, d_in, 4e-6, std::max(1.0, scale));
      check_near(weight_gradient, d_weight, 4e-6, 4);
      check_near(bias_gradient, d_bias, 4e-6, 4);
    }
}

TEST_CASE("without an input's gradient those of the parameters are the same, and no rows make none") {
  const std::size_t rows = 20, width = 64;
  const std::vector<float> x = random_values<float>(1, rows * width),
                           d = random_values<float>(2, rows * width), weight(width, 1.0f),
                           moments = random_values<float>(3, 2 * rows);
  const auto gradients = [&](std::size_t some, bool in_too) {
    const Memory<float> in(x), scale(weight), m(moments), out_gradient(d);
    Memory<float> in_gradient(rows * width), w(width), b(width);
    Memory<float> workspace(cuda::layer_norm_backward_workspace(some, width));
    cuda::layer_norm_backward<float>(nullptr, some, width, in.data(), scale.data(), m.data(),
                                     out_gradient.data(), false, in_too ? in_gradient.data() : nullptr, false,
                                     w.data(), b.data(), workspace.data());
    synchronize();
    return std::tuple(w.values(), b.values());
  };
  CHECK(gradients(rows, true) == gradients(rows, false));
  CHECK(gradients(0, true) == std::tuple(std::vector<float>(width), std::vector<float>(width)));
}

}  // namespace dtrun::norm_test
