// Convolutions whose columns are gathered against a matrix of all windows (im2col): in fp32 every bit, on
// every instruction set that this processor runs, in bf16 the same sums in another order; and no memory
// beyond what they say.
#include "worker/device/cpu/planned/convolutions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/skip.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cpu/matmul/multiplier.h"

namespace dtrun::convolutions_test {

using namespace dtrun::worker;
using dtrun::test::skip;
using planned::Convolutions;
using schedule::ImageShape;

namespace {

struct Im2colMatmuls : planned::KernelMatmuls {
  using KernelMatmuls::KernelMatmuls;
};

struct Results {
  std::vector<float> out, weight_gradient, in_gradient;
};

template <typename Matmuls>
Results convolve(const matmul::Kernels& kernels, const ImageShape& s, bool add, float* columns) {
  const std::size_t weights = std::size_t(s.out_channels) * s.in_channels * s.kernel * s.kernel;
  const std::vector<float> in = random_values(1, s.samples * s.in_size()), weight = random_values(2, weights),
                           d = random_values(3, s.samples * s.out_size());
  Results results{random_values(4, d.size()), random_values(5, weights), random_values(6, in.size())};
  Matmuls matmuls(kernels);
  matmuls.parameters_changed(weight.data(), weights);
  Convolutions<Matmuls> convolutions(matmuls, columns);
  convolutions.forward(s, in.data(), 0, add, results.out.data());
  convolutions.weight_gradient(s, in.data(), d.data(), add, results.weight_gradient.data());
  convolutions.in_gradient(s, 0, d.data(), add, results.in_gradient.data());
  return results;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool near(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference < 2e-6f * most;
}

void check(const ImageShape& s) {
  const InstructionSets<matmul::Kernels> found = matmul::available_kernels();
  std::vector<const matmul::Kernels*> sets(found.sets, found.sets + found.count);
  sets.push_back(matmul::bf16_kernels());
  std::erase_if(sets, [](const matmul::Kernels* set) { return set == nullptr || set->multiply == nullptr; });
  for (const matmul::Kernels* const set : sets)
    for (const bool add : {false, true}) {
      CAPTURE(std::string(set->instruction_set));
      CAPTURE(add);
      CAPTURE(s.samples);
      CAPTURE(s.in_channels);
      CAPTURE(s.height);
      CAPTURE(s.width);
      CAPTURE(s.out_channels);
      CAPTURE(s.kernel);
      CAPTURE(s.stride);
      CAPTURE(s.padding);
      const std::size_t patch = std::size_t(s.in_channels) * s.kernel * s.kernel;
      std::vector<float> windows(patch * s.out_size() / s.out_channels);
      const Results expected = convolve<Im2colMatmuls>(*set, s, add, windows.data());
      // Exactly as long as it says, so that a sanitizer sees more; with what another convolution left.
      std::vector<float> scratch = random_values(7, planned::gathered_floats(s));
      const Results made = convolve<planned::KernelMatmuls>(*set, s, add, scratch.data());
      const auto agree = set == matmul::bf16_kernels() ? near : same;
      CHECK(agree(made.out, expected.out));
      CHECK(agree(made.weight_gradient, expected.weight_gradient));
      CHECK(agree(made.in_gradient, expected.in_gradient));
    }
}

}  // namespace

TEST_CASE("a convolution with gathered columns gives what one with a matrix of windows does") {
  if (!matmul::multiplies_fp32()) return skip("this processor has no fused multiply-add");
  // Images of one row of vectors, of more, of less; several samples at a time and a rest of them.
  for (const int size : {1, 3, 4, 7, 14, 16, 17, 28, 33})
    for (const int stride : {1, 2, 3})
      check({.samples = 3,
             .in_channels = 5,
             .height = size,
             .width = size,
             .out_channels = 9,
             .kernel = 3,
             .stride = stride,
             .padding = 1});
  for (const int kernel : {1, 2, 5, 7})
    for (const int stride : {1, 2})
      for (const int padding : {0, kernel / 2})
        check({.samples = 2,
               .in_channels = 16,
               .height = 12,
               .width = 9,
               .out_channels = 17,
               .kernel = kernel,
               .stride = stride,
               .padding = padding});
}

TEST_CASE("a convolution with sums of several blocks, and with samples that are gathered in turns") {
  if (!matmul::multiplies_fp32()) return skip("this processor has no fused multiply-add");
  ImageShape s{.samples = 2,
               .in_channels = 64,
               .height = 5,
               .width = 5,
               .out_channels = 530,
               .kernel = 3,
               .padding = 1};
  check(s);
  s.in_channels = 3, s.height = s.width = 23;  // a sample at a time
  check(s);
  s = {.samples = 70,
       .in_channels = 33,
       .height = 4,
       .width = 4,
       .out_channels = 20,
       .kernel = 3,
       .padding = 1};
  check(s);
  // Of 32 x 32 pixels, whose rows would share few of the cache's sets.
  for (const int height : {32, 40}) {
    s = {.samples = 2,
         .in_channels = 1,
         .height = height,
         .width = 32,
         .out_channels = 16,
         .kernel = 3,
         .padding = 1};
    check(s);
  }
}

}  // namespace dtrun::convolutions_test
