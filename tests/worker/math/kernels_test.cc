// The loops, one by one, in every instruction set that this processor has: the same bits wherever
// multiply-add is fused, and the baseline's to rounding.
#include "worker/device/cpu/grouped/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "tests/worker/math/networks.h"
#include "worker/device/cpu/buffer.h"

using namespace dtrun::worker;
using namespace dtrun::worker::grouped;

namespace {

Buffer random_buffer(std::uint64_t seed, std::size_t floats) {
  Buffer buffer(floats);
  const auto values = random_values(seed, floats);
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

// Runs `compute(kernels, out)` with every set and compares the results.
template <typename Compute>
void check_sets_agree(std::size_t outputs, const Compute& compute) {
  const KernelSets found = available_kernels();
  Buffer fastest(outputs);
  compute(*found.sets[0], fastest.data());
  for (int i = 1; i < found.count; ++i) {
    CAPTURE(std::string(found.sets[i]->instruction_set));
    Buffer other(outputs);
    compute(*found.sets[i], other.data());
    if (i + 1 < found.count) CHECK(std::memcmp(fastest.data(), other.data(), outputs * sizeof(float)) == 0);
    float error = 0;
    for (std::size_t k = 0; k < outputs; ++k)
      error = std::max(error, std::abs(fastest.data()[k] - other.data()[k]));
    CHECK(error < 1e-3f);
  }
}

ConvShape conv_shape(int in_channels, int height, int width, int out_channels, int kernel) {
  return {in_channels, height, width, out_channels, height - kernel + 1, width - kernel + 1, kernel};
}

const ConvShape kConvs[] = {conv_shape(1, 28, 28, 20, 5), conv_shape(20, 12, 12, 20, 5),
                            conv_shape(3, 7, 9, 5, 3),    conv_shape(5, 8, 8, 3, 7),
                            conv_shape(2, 4, 13, 1, 2),   conv_shape(4, 3, 3, 6, 1)};

std::size_t in_values(const ConvShape& s) {
  return std::size_t(kGroup) * s.in_channels * s.in_height * s.in_width;
}
std::size_t out_values(const ConvShape& s) {
  return std::size_t(kGroup) * s.out_channels * s.out_height * s.out_width;
}
std::size_t weights(const ConvShape& s) {
  return std::size_t(s.out_channels) * s.in_channels * s.kernel * s.kernel;
}

}  // namespace

TEST_CASE("convolution is the same in every instruction set") {
  for (const ConvShape& s : kConvs) {
    CAPTURE(s.kernel);
    const int groups = 2;
    const Buffer in = random_buffer(1, in_values(s) * groups), out = random_buffer(2, out_values(s) * groups);
    const auto weight = random_values(3, weights(s)), bias = random_values(4, s.out_channels);
    check_sets_agree(out_values(s), [&](const Kernels& k, float* to) {
      k.conv_forward(s, in.data(), weight.data(), bias.data(), true, to);
    });
    check_sets_agree(in_values(s), [&](const Kernels& k, float* to) {
      k.conv_backward_data(s, out.data(), weight.data(), to);
    });
    check_sets_agree(weights(s) + s.out_channels, [&](const Kernels& k, float* to) {
      k.conv_backward_weights(s, groups, in.data(), out.data(), to, to + weights(s));
    });
  }
}

TEST_CASE("fully connected layers are the same in every instruction set") {
  for (const LinearShape& s :
       {LinearShape{320, 50}, LinearShape{50, 10}, LinearShape{3, 1}, LinearShape{17, 9}}) {
    CAPTURE(s.in_features);
    const int groups = 2;
    const std::size_t in_size = s.in_features * kGroup, out_size = s.out_features * kGroup;
    const std::size_t weight_size = s.in_features * s.out_features;
    const Buffer in = random_buffer(1, in_size * groups), out = random_buffer(2, out_size * groups);
    const auto weight = random_values(3, weight_size), bias = random_values(4, s.out_features);
    check_sets_agree(out_size, [&](const Kernels& k, float* to) {
      k.linear_forward(s, in.data(), weight.data(), bias.data(), false, to);
    });
    check_sets_agree(in_size, [&](const Kernels& k, float* to) {
      k.linear_backward_data(s, out.data(), weight.data(), to);
    });
    Buffer rows(padded_features(s.in_features) * kGroup * groups);
    check_sets_agree(weight_size + s.out_features, [&](const Kernels& k, float* to) {
      k.linear_backward_weights(s, groups, in.data(), out.data(), rows.data(), to, to + weight_size);
    });
  }
}

TEST_CASE("max-pooling is the same in every instruction set") {
  const PoolShape s{3, 7, 8, 3, 4, 2};
  const std::size_t in_size = kGroup * 3 * 7 * 8, out_size = kGroup * 3 * 3 * 4;
  const Buffer in = random_buffer(1, in_size), out_gradient = random_buffer(2, out_size);
  check_sets_agree(out_size, [&](const Kernels& k, float* to) { k.pool_forward(s, in.data(), false, to); });
  Buffer out(out_size);
  kernels().pool_forward(s, in.data(), false, out.data());
  check_sets_agree(in_size, [&](const Kernels& k, float* to) {
    k.pool_backward(s, in.data(), out.data(), out_gradient.data(), true, to);
  });
}

TEST_CASE("of equal largest elements the first gets a window's gradient, and of a ReLU's zeros none") {
  const PoolShape s{1, 2, 2, 1, 1, 2};
  Buffer in(4 * kGroup), out(kGroup), out_gradient(kGroup), in_gradient(4 * kGroup);
  for (int n = 0; n < kGroup; ++n) {
    in.data()[1 * kGroup + n] = in.data()[3 * kGroup + n] = n == 5 ? 0.0f : 2.0f;
    out_gradient.data()[n] = 3.0f;
  }
  for (const bool relu : {true, false}) {
    kernels().pool_forward(s, in.data(), false, out.data());
    kernels().pool_backward(s, in.data(), out.data(), out_gradient.data(), relu, in_gradient.data());
    for (int n = 0; n < kGroup; ++n) {
      CAPTURE(n);
      const float* g = in_gradient.data() + n;
      CHECK(g[0] == (n == 5 && !relu ? 3.0f : 0.0f));
      CHECK(g[1 * kGroup] == (n == 5 ? 0.0f : 3.0f));
      CHECK(g[2 * kGroup] == 0.0f);
      CHECK(g[3 * kGroup] == 0.0f);
    }
  }
}

TEST_CASE("samples are laid side by side and back; rows that are not there become zeros") {
  const std::size_t values = 5;
  const auto rows = random_values(1, kGroup * values);
  Buffer group(kGroup * values);
  std::vector<float> back(kGroup * values);
  kernels().rows_to_group(kGroup, values, rows.data(), false, group.data());
  CHECK(group.data()[2 * kGroup + 7] == rows[7 * values + 2]);
  kernels().group_to_rows(values, group.data(), back.data());
  CHECK(back == rows);
  kernels().rows_to_group(3, values, rows.data(), false, group.data());
  CHECK(group.data()[2 * kGroup + 2] == rows[2 * values + 2]);
  CHECK(group.data()[2 * kGroup + 3] == 0.0f);
}
