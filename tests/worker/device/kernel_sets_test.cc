// The loops, one by one, in every instruction set that this processor has: the same bits wherever
// multiply-add is fused, and the baseline's to rounding. With one set alone there is nothing to compare: a
// skip.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/skip.h"
#include "tests/worker/model/programs.h"
#include "worker/base/buffer.h"
#include "worker/device/cpu/grouped/kernels.h"

namespace dtrun::kernel_sets_test {

using namespace dtrun::worker;
using namespace dtrun::worker::grouped;

namespace {

Buffer random_buffer(std::uint64_t seed, std::size_t floats) {
  Buffer buffer(floats);
  const auto values = random_values(seed, floats);
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

// Why there is nothing to compare; empty: there is.
std::string why_one_set() {
  const InstructionSets<Kernels> found = available_kernels();
  if (found.count > 1) return "";
  return "this processor runs one of the instruction sets only, " +
         std::string(found.sets[0]->instruction_set);
}

// NaN if any difference is.
float largest_difference(const Buffer& a, const Buffer& b, std::size_t count) {
  float largest = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const float difference = std::abs(a.data()[k] - b.data()[k]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Runs `compute(kernels, out)` with every set and compares the results.
template <typename Compute>
void check_sets_agree(std::size_t outputs, const Compute& compute) {
  const InstructionSets<Kernels> found = available_kernels();
  Buffer fastest(outputs);
  compute(*found.sets[0], fastest.data());
  for (int i = 1; i < found.count; ++i) {
    CAPTURE(std::string(found.sets[i]->instruction_set));
    Buffer other(outputs);
    compute(*found.sets[i], other.data());
    if (i + 1 < found.count) CHECK(std::memcmp(fastest.data(), other.data(), outputs * sizeof(float)) == 0);
    CHECK(largest_difference(fastest, other, outputs) < 1e-3f);
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

TEST_CASE("a difference that is no number is the largest, so the comparisons below can fail") {
  Buffer a(2), b(2);
  a.data()[0] = 3;
  CHECK(largest_difference(a, b, 2) == 3);
  b.data()[0] = NAN;
  CHECK(std::isnan(largest_difference(a, b, 2)));
}

TEST_CASE("convolution is the same in every instruction set") {
  if (const std::string why = why_one_set(); !why.empty()) return dtrun::test::skip(why);
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
  if (const std::string why = why_one_set(); !why.empty()) return dtrun::test::skip(why);
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
  if (const std::string why = why_one_set(); !why.empty()) return dtrun::test::skip(why);
  const PoolShape s{3, 7, 8, 3, 4, 2};
  const std::size_t in_size = kGroup * 3 * 7 * 8, out_size = kGroup * 3 * 3 * 4;
  const Buffer in = random_buffer(1, in_size), out_gradient = random_buffer(2, out_size);
  check_sets_agree(out_size, [&](const Kernels& k, float* to) { k.pool_forward(s, in.data(), to); });
  Buffer out(out_size);
  kernels().pool_forward(s, in.data(), out.data());
  check_sets_agree(in_size, [&](const Kernels& k, float* to) {
    k.pool_backward(s, in.data(), out.data(), out_gradient.data(), true, to);
  });
}

}  // namespace dtrun::kernel_sets_test
