// Convolution and pooling against the definition in fp64.
#include "worker/device/cuda/kernels/images.h"

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::images_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;
using cuda::ConvShape, cuda::PoolShape;

namespace {

std::size_t inputs(const ConvShape& s) {
  return static_cast<std::size_t>(s.samples) * s.in_channels * s.height * s.width;
}
std::size_t outputs(const ConvShape& s) {
  return static_cast<std::size_t>(s.samples) * s.out_channels * s.out_height() * s.out_width();
}
std::size_t weights(const ConvShape& s) {
  return static_cast<std::size_t>(s.out_channels) * s.in_channels * s.kernel * s.kernel;
}

// Calls visit(output, weight, input) with their indices for every product.
template <typename Visit>
void each_product(const ConvShape& s, const Visit& visit) {
  for (std::size_t output = 0; output < outputs(s); ++output) {
    const int x = static_cast<int>(output % s.out_width()),
              y = static_cast<int>(output / s.out_width() % s.out_height());
    const std::size_t plane = output / s.out_width() / s.out_height();
    const std::size_t n = plane / s.out_channels, o = plane % s.out_channels;
    for (int c = 0; c < s.in_channels; ++c)
      for (int tap = 0; tap < s.kernel * s.kernel; ++tap) {
        const int row = y * s.stride - s.padding + tap / s.kernel,
                  column = x * s.stride - s.padding + tap % s.kernel;
        if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
        visit(output, (o * s.in_channels + c) * s.kernel * s.kernel + tap,
              ((n * s.in_channels + c) * s.height + row) * s.width + column);
      }
  }
}

template <typename T>
std::vector<double> onto(bool add, const std::vector<T>& old) {
  std::vector<double> all(old.size());
  for (std::size_t i = 0; add && i < old.size(); ++i) all[i] = value_of(old[i]);
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("convolutions and their gradients", T, DTRUN_ACTIVATIONS) {
  for (const ConvShape& s : {ConvShape{1, 1, 1, 1, 1, 1},
                             {3, 2, 3, 7, 5, 3},
                             {40, 1, 10, 9, 9, 5},
                             {2, 9, 17, 6, 8, 3},
                             {2, 16, 5, 5, 5, 5},
                             {3, 2, 9, 7, 6, 3, 2, 1},
                             {2, 3, 5, 9, 10, 1, 2, 0},
                             {2, 1, 3, 3, 4, 5, 3, 4}})
    for (const bool flag : {false, true}) {  // ReLU, and adding
      CAPTURE(s.in_channels);
      CAPTURE(s.out_channels);
      CAPTURE(flag);
      const std::vector<T> in = random_values<T>(1, inputs(s)), weight = random_values<T>(2, weights(s)),
                           d = random_values<T>(3, outputs(s)), old_in = random_values<T>(4, inputs(s));
      const std::vector<float> bias = random_values<float>(5, s.out_channels),
                               old_weight = random_values<float>(6, weights(s)),
                               old_bias = random_values<float>(7, s.out_channels);
      std::vector<double> out(outputs(s)), d_in = onto(flag, old_in), d_weight = onto(flag, old_weight),
                                           d_bias = onto(flag, old_bias);
      const std::size_t pixels = static_cast<std::size_t>(s.out_height()) * s.out_width();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t channel = i / pixels % s.out_channels;
        out[i] = bias[channel];
        d_bias[channel] += value_of(d[i]);
      }
      each_product(s, [&](std::size_t o, std::size_t w, std::size_t i) {
        out[o] += static_cast<double>(value_of(weight[w])) * value_of(in[i]);
        d_in[i] += static_cast<double>(value_of(weight[w])) * value_of(d[o]);
        d_weight[w] += static_cast<double>(value_of(in[i])) * value_of(d[o]);
      });
      if (flag)
        for (double& value : out) value = std::max(value, 0.0);
      const auto [got, got_in, got_weight, got_bias, workspace] = in_all_orders([&] {
        const Memory<T> input(in), w(weight, 1), gradient(d);
        const Memory<float> offset(bias);
        std::tuple all{Memory<T>(outputs(s)), flag ? Memory<T>(old_in) : Memory<T>(inputs(s)),
                       flag ? Memory<float>(old_weight, 1) : Memory<float>(weights(s), 1),
                       flag ? Memory<float>(old_bias, 1) : Memory<float>(s.out_channels, 1),
                       Memory<float>(cuda::conv2d_backward_parameters_workspace(s))};
        auto& [got, got_in, got_weight, got_bias, workspace] = all;
        cuda::conv2d<T>(nullptr, s, input.data(), w.data(), offset.data(), flag, got.data());
        cuda::conv2d_backward_input<T>(nullptr, s, w.data(), gradient.data(), flag, got_in.data());
        cuda::conv2d_backward_parameters<T>(nullptr, s, input.data(), gradient.data(), flag,
                                            got_weight.data(), got_bias.data(), workspace.data());
        synchronize();
        return all;
      });
      check_near(got, out, 2e-6, 10);
      check_near(got_in, d_in, 2e-6, 10);
      check_near(got_weight, d_weight, 2e-6, 50);
      check_near(got_bias, d_bias, 2e-6, 50);
    }
}

TEST_CASE_TEMPLATE("a convolution's bias and ReLU by themselves, and the bias' gradient", T,
                   DTRUN_ACTIVATIONS) {
  for (const ConvShape& s : {ConvShape{1, 1, 1, 1, 1, 1}, {40, 1, 9, 10, 9, 5}, {3, 2, 5, 9, 40, 3}})
    for (const bool flag : {false, true}) {  // ReLU, and adding
      CAPTURE(s.samples);
      CAPTURE(flag);
      const std::vector<T> without = random_values<T>(1, outputs(s)), d = random_values<T>(2, outputs(s));
      const std::vector<float> bias = random_values<float>(3, s.out_channels),
                               old_bias = random_values<float>(4, s.out_channels);
      std::vector<double> out(outputs(s)), d_bias = onto(flag, old_bias);
      const std::size_t pixels = static_cast<std::size_t>(s.out_height()) * s.out_width();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t channel = i / pixels % s.out_channels;
        out[i] = value_of(without[i]) + bias[channel];
        if (flag) out[i] = std::max(out[i], 0.0);
        d_bias[channel] += value_of(d[i]);
      }
      const auto [got, got_bias, workspace] = in_all_orders([&] {
        const Memory<T> gradient(d);
        const Memory<float> row(bias);
        std::tuple all{Memory<T>(without),
                       flag ? Memory<float>(old_bias, 1) : Memory<float>(s.out_channels, 1),
                       Memory<float>(cuda::conv2d_backward_bias_workspace(s))};
        auto& [got, got_bias, workspace] = all;
        cuda::conv2d_bias<T>(nullptr, s, row.data(), flag, got.data());
        cuda::conv2d_backward_bias<T>(nullptr, s, gradient.data(), flag, got_bias.data(), workspace.data());
        synchronize();
        return all;
      });
      check_near(got, out, 2e-6, 1);
      check_near(got_bias, d_bias, 2e-6, 50);
    }
}

TEST_CASE_TEMPLATE("an average is that of its plane, and its gradient goes to all of it", T,
                   DTRUN_ACTIVATIONS) {
  for (const std::size_t planes : {1, 7})
    for (const std::size_t pixels : {1, 25, 33, 100})
      for (const bool add : {false, true}) {
        CAPTURE(pixels);
        CAPTURE(add);
        const std::vector<T> in = random_values<T>(1, planes * pixels), d = random_values<T>(2, planes),
                             old = random_values<T>(3, planes * pixels);
        std::vector<double> out(planes), d_in = onto(add, old);
        for (std::size_t i = 0; i < planes * pixels; ++i) {
          out[i / pixels] += value_of(in[i]) / static_cast<double>(pixels);
          d_in[i] += value_of(d[i / pixels]) / static_cast<double>(pixels);
        }
        const auto [got, gradient] = in_all_orders([&] {
          const Memory<T> input(in), out_gradient(d);
          std::tuple all{Memory<T>(planes), add ? Memory<T>(old) : Memory<T>(planes * pixels)};
          cuda::average<T>(nullptr, planes, pixels, input.data(), std::get<0>(all).data());
          cuda::average_backward<T>(nullptr, planes, pixels, out_gradient.data(), add,
                                    std::get<1>(all).data());
          synchronize();
          return all;
        });
        check_near(got, out, 2e-6, 1);
        check_near(gradient, d_in, 2e-6, 1);
      }
}

TEST_CASE_TEMPLATE("pooling takes a window's first largest element, and its gradient goes there", T,
                   DTRUN_ACTIVATIONS) {
  for (const PoolShape& s : {PoolShape{1, 1, 1, 1, 1},
                             {2, 3, 7, 5, 2},
                             {1, 2, 9, 10, 3},
                             {1, 1, 4, 4, 4},
                             {2, 2, 8, 11, 3, 2, 1},
                             {1, 3, 7, 7, 2, 1, 1},
                             {1, 1, 9, 8, 2, 3, 0}})
    for (const bool add : {false, true}) {
      CAPTURE(s.height);
      CAPTURE(add);
      const std::size_t planes = static_cast<std::size_t>(s.samples) * s.channels;
      const std::size_t count = planes * s.height * s.width, pooled = planes * s.out_height() * s.out_width();
      std::vector<T> in = random_values<T>(1, count, 2);
      for (T& value : in) value = T(std::round(value_of(value)));  // so that windows have equals
      const std::vector<T> d = random_values<T>(2, pooled), old = random_values<T>(3, count);
      std::vector<double> out(pooled), d_in = onto(add, old);
      for (std::size_t i = 0; i < pooled; ++i) {
        const std::size_t x = i % s.out_width(), y = i / s.out_width() % s.out_height();
        const std::size_t plane = i / s.out_width() / s.out_height();
        std::size_t best = count;
        for (int tap = 0; tap < s.kernel * s.kernel; ++tap) {
          const int row = static_cast<int>(y) * s.stride - s.padding + tap / s.kernel,
                    column = static_cast<int>(x) * s.stride - s.padding + tap % s.kernel;
          if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
          const std::size_t at = (plane * s.height + row) * s.width + column;
          if (best == count || value_of(in[at]) > value_of(in[best])) best = at;
        }
        out[i] = value_of(in[best]);
        d_in[best] += value_of(d[i]);
      }
      const auto [got, gradient] = in_all_orders([&] {
        const Memory<T> input(in), out_gradient(d);
        std::tuple all{Memory<T>(pooled), add ? Memory<T>(old) : Memory<T>(count)};
        cuda::max_pool<T>(nullptr, s, input.data(), std::get<0>(all).data());
        cuda::max_pool_backward<T>(nullptr, s, input.data(), out_gradient.data(), add,
                                   std::get<1>(all).data());
        synchronize();
        return all;
      });
      check_near(got, out, 0);
      check_near(gradient, d_in, 1e-7);
    }
}

}  // namespace dtrun::images_test
