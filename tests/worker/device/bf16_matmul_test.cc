// Matmuls of bf16 against plain loops over the same rounded values, in every layout and at sizes that fit no
// tile; and the rounding itself.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/worst.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/config/bf16.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"

using namespace dtrun::worker;
using onednn::Bf16;

namespace {

float value_of(Bf16 half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> halves(values.size());
  planned::kernels().to_bf16(values.size(), values.data(), halves.data());
  return halves;
}

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Sizes {
  std::int64_t m, n, k;
};

}  // namespace

TEST_CASE("a float becomes the nearest bf16, on every set alike") {
  const InstructionSets<planned::Kernels> sets = planned::available_kernels();
  for (int set = 0; set < sets.count; ++set) {
    CAPTURE(sets.sets[set]->instruction_set);
    const auto half_of = [&](std::uint32_t bits) {
      const std::vector<float> values(17, float_of(bits));  // in a vector, and behind it
      std::vector<Bf16> halves(values.size());
      sets.sets[set]->to_bf16(values.size(), values.data(), halves.data());
      CHECK(halves == std::vector<Bf16>(values.size(), halves.back()));
      return halves.back();
    };
    CHECK(half_of(0x3F800000) == 0x3F80);
    CHECK(half_of(0x3F808000) == 0x3F80);  // halfway: the even one
    CHECK(half_of(0x3F818000) == 0x3F82);
    CHECK(half_of(0x3F808001) == 0x3F81);
    CHECK(half_of(0x3F817FFF) == 0x3F81);
    CHECK(half_of(0xBF808001) == 0xBF81);
    CHECK(half_of(0x7F7FFFFF) == 0x7F80);  // beyond the largest: infinite
    CHECK(half_of(0x7F800000) == 0x7F80);
    CHECK(half_of(0xFF800000) == 0xFF80);
    CHECK(half_of(0x7F800001) == 0x7FC0);  // NaN, also where its upper half alone were infinite
    CHECK(half_of(0xFFFFFFFF) == 0xFFFF);
    CHECK(half_of(0x00000000) == 0);
    CHECK(half_of(0x80000000) == 0x8000);
    CHECK(half_of(0x007FFFFF) == 0);  // less than a normal number
    CHECK(half_of(0x807FFFFF) == 0x8000);
    CHECK(half_of(0x00800000) == 0x0080);
    // Numbers of all magnitudes, in rows that fit no vector.
    for (const std::size_t count : {1, 15, 16, 17, 1000}) {
      std::vector<float> values = random_values(count, count, 4);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = std::ldexp(values[i], static_cast<int>(i % 200) - 100);
      std::vector<Bf16> halves(count + 1, 0x1234);
      sets.sets[set]->to_bf16(count, values.data(), halves.data());
      for (std::size_t i = 0; i < count; ++i) CHECK(value_of(halves[i]) == reference::to_bf16(values[i]));
      CHECK(halves[count] == 0x1234);
    }
  }
}

TEST_CASE("matmuls of bf16 are the sums of products, to fp32's rounding, in every layout") {
  if (!onednn::multiplies_bf16()) {
    MESSAGE("skipped: " << bf16_refusal());
    return;
  }
  onednn::use_one_thread();
  onednn::Bf16Multiplier multiplier;
  for (const Sizes& sizes : {Sizes{1, 1, 1},
                             {1, 7, 5},
                             {3, 1, 2},
                             {7, 13, 1},
                             {5, 3, 8},
                             {64, 64, 64},
                             {64, 128, 33},
                             {33, 10, 512},
                             {150, 17, 65},
                             {65, 512, 10},
                             {257, 300, 129}})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const int gap : {0, 3}) {  // elements between rows
          const auto m = sizes.m, n = sizes.n, k = sizes.k;
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(a_transposed);
          CAPTURE(b_transposed);
          const std::int64_t a_stride = (a_transposed ? m : k) + gap, b_stride = (b_transposed ? k : n) + gap,
                             c_stride = n + gap;
          const auto a = rounded(random_values(1, (a_transposed ? k : m) * a_stride)),
                     b = rounded(random_values(2, (b_transposed ? n : k) * b_stride));
          const std::vector<float> bias = random_values(3, n);
          enum class What { kPlain, kScaled, kAdded, kBias };
          for (const What what : {What::kPlain, What::kScaled, What::kAdded, What::kBias}) {
            CAPTURE(static_cast<int>(what));
            const float alpha = what == What::kScaled ? 0.3f : 1.0f;
            const bool add = what == What::kAdded;
            std::vector<float> c(m * c_stride, add ? 2.5f : std::numeric_limits<float>::quiet_NaN());
            const std::vector<float> before = c;
            multiplier.multiply({.a_transposed = a_transposed,
                                 .b_transposed = b_transposed,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .alpha = alpha,
                                 .a = a.data(),
                                 .a_stride = a_stride,
                                 .b = b.data(),
                                 .b_stride = b_stride,
                                 .beta = add ? 1.0f : 0.0f,
                                 .bias = what == What::kBias ? bias.data() : nullptr,
                                 .c = c.data(),
                                 .c_stride = c_stride});
            double worst = 0;
            bool between_is_untouched = true;
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0, size = 0;
                for (std::int64_t l = 0; l < k; ++l) {
                  const double term =
                      double{value_of(a[a_transposed ? l * a_stride + i : i * a_stride + l])} *
                      value_of(b[b_transposed ? j * b_stride + l : l * b_stride + j]);
                  sum += term, size += std::abs(term);
                }
                const double other = add ? 2.5 : what == What::kBias ? bias[j] : 0.0;
                const double error = std::abs(c[i * c_stride + j] - (alpha * sum + other));
                const double allowed = static_cast<double>(k + 2) * 0x1p-24 * (size + std::abs(other));
                if (!(error <= allowed)) worst = dtrun::test::worst_of(worst, error / allowed);
              }
              for (int j = 0; j < gap; ++j)
                between_is_untouched =
                    between_is_untouched &&
                    std::memcmp(&c[i * c_stride + n + j], &before[i * c_stride + n + j], sizeof(float)) == 0;
            }
            CHECK(worst == 0);
            CHECK(between_is_untouched);
          }
        }
}
