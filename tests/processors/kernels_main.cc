// Prints a hash of what each of the CPU's loops computes from fixed values: "matmul 0123456789abcdef".
// Without any library, so that it is easily built for another processor. DTRUN_SET: the copy of the loops to
// run.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/planned/kernels.h"

namespace {

using namespace dtrun::worker;
using Floats = std::vector<float>;

// From -2 to 2, the same everywhere.
Floats values(std::size_t count, std::uint32_t seed) {
  Floats result(count);
  for (float& value : result) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(seed >> 8) * 0x1p-22f - 2;
  }
  return result;
}

// FNV-1a.
void print(const char* name, const void* bytes, std::size_t count) {
  std::uint64_t hash = 14695981039346656037u;
  for (std::size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211u;
  std::printf("%s %016llx\n", name, static_cast<unsigned long long>(hash));
}
void print(const char* name, const Floats& values) {
  print(name, values.data(), values.size() * sizeof(float));
}

void matmuls() {
  const matmul::Kernels& k = Copies<matmul::Kernels>::DTRUN_SET;
  float* const scratch =
      static_cast<float*>(std::aligned_alloc(64, (k.scratch * sizeof(float) + 63) / 64 * 64));
  for (const bool transposed : {false, true})
    for (const std::int64_t m : {1, 13, 64}) {
      const std::int64_t n = 75, depth = 1100;
      const Floats a = values(m * depth, 1), b = values(n * depth, 2);
      Floats c = values(m * n, 3);
      k.multiply({.a_transposed = transposed,
                  .b_transposed = !transposed,
                  .m = m,
                  .n = n,
                  .k = depth,
                  .alpha = 0.3f,
                  .a = a.data(),
                  .a_stride = transposed ? m : depth,
                  .b = b.data(),
                  .b_stride = transposed ? n : depth,
                  .beta = 1,
                  .c = c.data(),
                  .c_stride = n},
                 scratch);
      print("matmul", c);
    }
  std::free(scratch);
}

void loops() {
  const planned::Kernels& k = Copies<planned::Kernels>::DTRUN_SET;
  constexpr std::size_t kRows = 5, kWidth = 203, kCount = kRows * kWidth;
  const Floats x = values(kCount, 4), d = values(kCount, 5), weight = values(kWidth, 6),
               bias = values(kWidth, 7);
  Floats y(kCount), dx(kCount), moments(2 * kRows), dw(kWidth), db(kWidth);
  k.gelu(kCount, x.data(), y.data());
  print("gelu", y);
  k.gelu_backward(kCount, x.data(), d.data(), false, dx.data());
  print("gelu_backward", dx);
  k.layer_norm(kRows, kWidth, 1e-5f, x.data(), weight.data(), bias.data(), moments.data(), y.data());
  print("layer_norm", y);
  k.layer_norm_backward(kRows, kWidth, x.data(), weight.data(), moments.data(), d.data(), false, dx.data(),
                        false, dw.data(), db.data());
  print("layer_norm_backward", dx);
  print("layer_norm_weights", dw);
  y = x;
  k.causal_softmax(kRows, kWidth - kRows, kWidth, kWidth, y.data());
  print("softmax", y);
  dx = d;
  k.softmax_backward(kRows, kWidth, kWidth, y.data(), 0.125f, dx.data());
  print("softmax_backward", dx);
  Floats logits = x;
  std::int32_t largest = 0;
  const float loss = k.classify(kWidth, 9, 0.1f, true, logits.data(), &largest);
  print("loss", &loss, sizeof loss);
  print("logits", logits);
  Floats scratch(2 * kWidth);
  logits = x;
  const float taught = k.distill(kWidth, 9, 0.1f, 2, 0.3f, d.data(), scratch.data(), logits.data(), &largest);
  print("taught_loss", &taught, sizeof taught);
  print("taught_logits", logits);
  k.sum_rows(kRows, kWidth, x.data(), false, dw.data());
  print("sum_rows", dw);
  k.dropout(kCount, {{1, 2}, 3, 4, 5}, 0.3f, x.data(), false, y.data());
  print("dropout", y);
}

void images() {
  const grouped::Kernels& k = Copies<grouped::Kernels>::DTRUN_SET;
  const grouped::ConvShape s{3, 9, 11, 5, 7, 9, 3};
  const std::size_t in = std::size_t{grouped::kGroup} * 3 * 9 * 11,
                    out = std::size_t{grouped::kGroup} * 5 * 7 * 9;
  alignas(64) static float image[16 * 3 * 9 * 11], result[16 * 5 * 7 * 9];
  std::memcpy(image, values(in, 8).data(), in * sizeof(float));
  const Floats weight = values(5 * 3 * 3 * 3, 9), bias = values(5, 10);
  k.conv_forward(s, image, weight.data(), bias.data(), true, result);
  print("convolution", result, out * sizeof(float));
}

}  // namespace

int main() {
  matmuls();
  loops();
  images();
}
