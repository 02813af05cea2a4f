// Matmuls of bf16, by our kernels and by oneDNN's for AMX, against plain loops over the same rounded values,
// in every layout and at sizes around the borders of the tiling; and the rounding itself.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "tests/support/worst.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/config/bf16.h"
#include "worker/device/cpu/matmul/multiplier.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::bf16_matmul_test {

using namespace dtrun::worker;
using matmul::Bf16;

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

std::vector<float> widened(const std::vector<Bf16>& halves) {
  std::vector<float> values;
  for (const Bf16 half : halves) values.push_back(value_of(half));
  return values;
}

// Of values that bf16 has, given as fp32.
struct Way {
  const char* name;
  std::function<void(matmul::Matmul<float>)> multiply;
};

matmul::Matmul<Bf16> of_halves(const matmul::Matmul<float>& p, const Bf16* a, const Bf16* b) {
  return {.a_transposed = p.a_transposed,
          .b_transposed = p.b_transposed,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .alpha = p.alpha,
          .a = a,
          .a_stride = p.a_stride,
          .b = b,
          .b_stride = p.b_stride,
          .beta = p.beta,
          .bias = p.bias,
          .c = p.c,
          .c_stride = p.c_stride};
}

struct Sizes {
  std::int64_t m, n, k;
};

// Element (i, j) of a b in the order of matmul/kernels.h, for two blocks of pairs; a pair as VDPBF16PS adds
// it (Intel's manual, volume 2): first the second product, then the first, each rounded once.
float in_order(const std::vector<float>& a, const std::vector<float>& b, const Sizes& s, std::int64_t i,
               std::int64_t j) {
  const std::int64_t pairs = (s.k + 1) / 2;
  float of_blocks[2] = {};
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    float& sum = of_blocks[pair < pairs / 2 + pairs % 2 ? 0 : 1];
    for (const std::int64_t k : {2 * pair + 1, 2 * pair})
      if (k < s.k) sum = std::fma(a[i * s.k + k], b[k * s.n + j], sum);
  }
  return of_blocks[0] + of_blocks[1];
}

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
  if (matmul::bf16_kernels() == nullptr) {
    MESSAGE("skipped: " << bf16_refusal());
    return;
  }
  matmul::Multiplier kernels(*matmul::bf16_kernels());
  std::vector<Way> ways = {{"kernels", [&](const matmul::Matmul<float>& p) { kernels.multiply(p); }}};
  onednn::use_one_thread();
  onednn::Bf16Multiplier amx;
  std::vector<Bf16> left, right;
  if (onednn::has_amx())
    ways.push_back({"AMX", [&](const matmul::Matmul<float>& p) {
                      amx.multiply(of_halves(p, left.data(), right.data()));
                    }});
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
                             {300, 1, 64},
                             {40, 1, 1300},
                             {9, 37, 1023},
                             {31, 33, 1025},
                             {20, 40, 2051},
                             {600, 64, 31},
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
          left = rounded(random_values(1, (a_transposed ? k : m) * a_stride));
          right = rounded(random_values(2, (b_transposed ? n : k) * b_stride));
          const std::vector<float> a = widened(left), b = widened(right);
          const std::vector<float> bias = random_values(3, n);
          std::vector<double> sums, sizes_of_terms;  // [m][n]
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0, size = 0;
              for (std::int64_t l = 0; l < k; ++l) {
                const double term = double{a[a_transposed ? l * a_stride + i : i * a_stride + l]} *
                                    b[b_transposed ? j * b_stride + l : l * b_stride + j];
                sum += term, size += std::abs(term);
              }
              sums.push_back(sum), sizes_of_terms.push_back(size);
            }
          enum class What { kPlain, kScaled, kAdded, kBias };
          for (const Way& way : ways)
            for (const What what : {What::kPlain, What::kScaled, What::kAdded, What::kBias}) {
              CAPTURE(way.name);
              CAPTURE(static_cast<int>(what));
              const float alpha = what == What::kScaled ? 0.3f : 1.0f;
              const bool add = what == What::kAdded;
              std::vector<float> c(m * c_stride, add ? 2.5f : std::numeric_limits<float>::quiet_NaN());
              const std::vector<float> before = c;
              way.multiply({.a_transposed = a_transposed,
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
                  const double sum = sums[i * n + j], size = sizes_of_terms[i * n + j];
                  const double other = add ? 2.5 : what == What::kBias ? bias[j] : 0.0;
                  const double error = std::abs(c[i * c_stride + j] - (alpha * sum + other));
                  const double allowed = static_cast<double>(k + 2) * 0x1p-24 * (size + std::abs(other));
                  if (!(error <= allowed)) worst = dtrun::test::worst_of(worst, error / allowed);
                }
                for (int j = 0; j < gap; ++j)
                  between_is_untouched =
                      between_is_untouched && std::memcmp(&c[i * c_stride + n + j],
                                                          &before[i * c_stride + n + j], sizeof(float)) == 0;
              }
              CHECK(worst == 0);
              CHECK(between_is_untouched);
            }
        }
}

TEST_CASE("our kernels round to the nearest bf16, and their sums have one order in every layout") {
  if (matmul::bf16_kernels() == nullptr) {
    MESSAGE("skipped: " << bf16_refusal());
    return;
  }
  matmul::Multiplier kernels(*matmul::bf16_kernels());
  const Sizes sizes{37, 45, 1333};
  const auto values_a = random_values(1, sizes.m * sizes.k), values_b = random_values(2, sizes.k * sizes.n);
  const std::vector<float> rounded_a = widened(rounded(values_a)), rounded_b = widened(rounded(values_b));
  std::vector<float> right_ones(sizes.m * sizes.n);
  for (std::int64_t i = 0; i < sizes.m; ++i)
    for (std::int64_t j = 0; j < sizes.n; ++j)
      right_ones[i * sizes.n + j] = in_order(rounded_a, rounded_b, sizes, i, j);
  for (const bool round_before : {false, true}) {
    const std::vector<float>&a = round_before ? rounded_a : values_a,
          &b = round_before ? rounded_b : values_b;
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        std::vector<float> left(a.size()), right(b.size()), c(sizes.m * sizes.n);
        for (std::int64_t i = 0; i < sizes.m; ++i)
          for (std::int64_t k = 0; k < sizes.k; ++k)
            left[a_transposed ? k * sizes.m + i : i * sizes.k + k] = a[i * sizes.k + k];
        for (std::int64_t k = 0; k < sizes.k; ++k)
          for (std::int64_t j = 0; j < sizes.n; ++j)
            right[b_transposed ? j * sizes.k + k : k * sizes.n + j] = b[k * sizes.n + j];
        kernels.multiply({.a_transposed = a_transposed,
                          .b_transposed = b_transposed,
                          .m = sizes.m,
                          .n = sizes.n,
                          .k = sizes.k,
                          .a = left.data(),
                          .a_stride = a_transposed ? sizes.m : sizes.k,
                          .b = right.data(),
                          .b_stride = b_transposed ? sizes.k : sizes.n,
                          .c = c.data(),
                          .c_stride = sizes.n});
        CHECK(c == right_ones);
      }
  }
}

}  // namespace dtrun::bf16_matmul_test
