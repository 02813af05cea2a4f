// Our matmuls of fp32 against a plain loop of fused multiply-adds in the order that kernels.h promises: every
// bit, on every instruction set that this processor runs, in every layout, at sizes around each border that
// the tiling has.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/skip.h"
#include "tests/worker/model/programs.h"
#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/matmul/multiplier.h"

namespace dtrun::matmul_test {

using namespace dtrun::worker;
using dtrun::test::skip;

namespace {

using Size = std::int64_t;

std::vector<const matmul::Kernels*> kernel_sets() {
  const InstructionSets<matmul::Kernels> found = matmul::available_kernels();
  std::vector<const matmul::Kernels*> sets(found.sets, found.sets + found.count);
  std::erase_if(sets, [](const matmul::Kernels* set) { return set->multiply == nullptr; });
  return sets;
}

struct Case {
  Size m, n, k;
  float alpha = 1;
  bool add = false;
  Size gap = 0;  // floats between the rows of all three matrices
  bool bias = false;
};

struct Matrices {
  Matrices(const Case& c, bool a_transposed, bool b_transposed)
      : a_stride((a_transposed ? c.m : c.k) + c.gap),
        b_stride((b_transposed ? c.k : c.n) + c.gap),
        c_stride(c.n + c.gap),
        a(random_values(1, a_stride * (a_transposed ? c.k : c.m) + 1)),  // an address, if nothing is in it
        b(random_values(2, b_stride * (b_transposed ? c.n : c.k) + 1)),
        bias(random_values(4, c.n)),
        before(random_values(3, c_stride * c.m + 1)) {}

  Size a_stride, b_stride, c_stride;
  std::vector<float> a, b, bias, before;
};

// One chain of fused multiply-adds for each block of k.
void plain(const matmul::Matmul<float>& p) {
  const Size blocks = std::max<Size>(1, (p.k + matmul::kBlock - 1) / matmul::kBlock);
  for (Size i = 0; i < p.m; ++i)
    for (Size j = 0; j < p.n; ++j) {
      float* const to = p.c + i * p.c_stride + j;
      for (Size block = 0, k = 0; block < blocks; ++block) {
        float sum = 0;
        for (const Size end = k + p.k / blocks + (block < p.k % blocks); k < end; ++k)
          sum = std::fma(p.a_transposed ? p.a[k * p.a_stride + i] : p.a[i * p.a_stride + k],
                         p.b_transposed ? p.b[j * p.b_stride + k] : p.b[k * p.b_stride + j], sum);
        sum *= p.alpha;
        if (block == 0 && p.bias != nullptr) *to = p.bias[j];
        *to = block > 0 || p.beta != 0 || p.bias != nullptr ? *to + sum : sum;
      }
    }
}

void check(const Case& c) {
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true}) {
      CAPTURE(c.m);
      CAPTURE(c.n);
      CAPTURE(c.k);
      CAPTURE(a_transposed);
      CAPTURE(b_transposed);
      const Matrices in(c, a_transposed, b_transposed);
      matmul::Matmul<float> task{.a_transposed = a_transposed,
                                 .b_transposed = b_transposed,
                                 .m = c.m,
                                 .n = c.n,
                                 .k = c.k,
                                 .alpha = c.alpha,
                                 .a = in.a.data(),
                                 .a_stride = in.a_stride,
                                 .b = in.b.data(),
                                 .b_stride = in.b_stride,
                                 .beta = c.add ? 1.0f : 0.0f,
                                 .bias = c.bias ? in.bias.data() : nullptr,
                                 .c_stride = in.c_stride};
      std::vector<float> expected = in.before;
      task.c = expected.data();
      plain(task);
      for (const matmul::Kernels* set : kernel_sets()) {
        CAPTURE(std::string(set->instruction_set));
        std::vector<float> out = in.before;
        // Scratch that holds what another matmul left.
        const Buffer scratch(set->scratch);
        std::fill_n(scratch.data(), scratch.size(), std::numeric_limits<float>::quiet_NaN());
        task.c = out.data();
        set->multiply(task, scratch.data());
        CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
      }
    }
}

}  // namespace

TEST_CASE("a matmul of any size has the promised order") {
  if (kernel_sets().empty()) return skip("this processor has no fused multiply-add");
  for (const Size m : {1, 2, 5, 6, 7, 13, 14, 15, 17, 29, 70, 71})
    for (const Size n : {1, 8, 15, 16, 17, 31, 32, 33, 65}) check({.m = m, .n = n, .k = 19});
  for (const Size k : {0, 1, 2, 7, 8, 15, 16, 17, 511, 512, 513, 1023, 1025, 1537})
    check({.m = 9, .n = 37, .k = k});
}

TEST_CASE("rows and columns beyond what is kept at a time, and rows whose distance is a page") {
  if (kernel_sets().empty()) return skip("this processor has no fused multiply-add");
  check({.m = 32 * 14 + 3, .n = 35, .k = 21});
  check({.m = 32 * 6 * 2 + 5, .n = 4 * 32 + 7, .k = 530, .add = true});
  check({.m = 70, .n = 1024, .k = 1024});
  check({.m = 530, .n = 260, .k = matmul::kBlock});  // its copied rows are not kept from panels to panels
  check({.m = 1024, .n = 48, .k = 33});
}

TEST_CASE("a matmul scales, adds, and leaves alone what lies between the rows") {
  if (kernel_sets().empty()) return skip("this processor has no fused multiply-add");
  for (const Size m : {1, 7, 33, 200})
    for (const Size k : {0, 20, 700}) check({.m = m, .n = 77, .k = k, .alpha = 0.5f, .gap = 3, .bias = true});
  check({.m = 9, .n = 600, .k = 530, .bias = true});
  for (const Size m : {1, 3, 40, 300}) check({.m = m, .n = 1, .k = 530, .bias = true});
  for (const bool add : {false, true}) {
    check({.m = 15, .n = 33, .k = 20, .alpha = 0.125f, .add = add, .gap = 5});
    check({.m = 64, .n = 300, .k = 700, .alpha = -1.5f, .add = add, .gap = 3});
    check({.m = 3, .n = 5, .k = 0, .add = add, .gap = 2});
  }
}

TEST_CASE("DTRUN_CPU leaves out the instruction sets above the one that it names") {
  const char* const before = std::getenv("DTRUN_CPU");
  const std::string kept = before != nullptr ? before : "";
  const auto sets_up_to = [](const char* largest) {
    setenv("DTRUN_CPU", largest, 1);
    const InstructionSets<matmul::Kernels> found = matmul::available_kernels();
    return std::vector<const matmul::Kernels*>(found.sets, found.sets + found.count);
  };
  const matmul::Kernels* const baseline = sets_up_to("baseline").front();
  CHECK(sets_up_to("baseline").size() == 1);
  for (const matmul::Kernels* set : sets_up_to("avx2")) CHECK(set->instruction_set != std::string("AVX-512"));
  CHECK(sets_up_to("avx2").back() == baseline);
  CHECK_THROWS_AS(sets_up_to("mmx"), WorkerError);
  before != nullptr ? setenv("DTRUN_CPU", kept.c_str(), 1) : unsetenv("DTRUN_CPU");
}

TEST_CASE("an empty matmul does nothing, and what is not finite stays so") {
  if (kernel_sets().empty()) return skip("this processor has no fused multiply-add");
  check({.m = 0, .n = 4, .k = 3});
  check({.m = 4, .n = 0, .k = 3});
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a{1, infinity, 2, 3}, b{1, 0, 0, 1};
  float c[4] = {};
  matmul::Multiplier().multiply({.m = 2,
                                 .n = 2,
                                 .k = 2,
                                 .a = a.data(),
                                 .a_stride = 2,
                                 .b = b.data(),
                                 .b_stride = 2,
                                 .c = c,
                                 .c_stride = 2});
  CHECK(std::isnan(c[0]));  // 1 * 1 + infinity * 0
  CHECK(c[1] == infinity);
  CHECK(c[2] == 2);
  CHECK(c[3] == 3);
}

}  // namespace dtrun::matmul_test
