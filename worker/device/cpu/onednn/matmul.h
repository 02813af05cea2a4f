// Matmuls by oneDNN on the calling thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dtrun::worker::onednn {

// Makes oneDNN use the calling thread alone, for work from this thread. By default it divides its work among
// OpenMP's threads, in a way that depends on their number.
void use_one_thread();

using Bf16 = std::uint16_t;  // the upper half of a float's bits

// Row-major. c = alpha * a b + beta * c with a [m, k], b [k, n], c [m, n]; a_transposed: a is [k, m] in
// memory; b_transposed: b is [n, k]. The strides are elements from one row in memory to the next.
template <typename Element>  // float or Bf16
struct Matmul {
  bool a_transposed = false, b_transposed = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const Element* a = nullptr;
  std::int64_t a_stride = 0;
  const Element* b = nullptr;
  std::int64_t b_stride = 0;
  float beta = 0;  // 1, or 0: then c is only written
  float* c = nullptr;
  std::int64_t c_stride = 0;
};

// "oneDNN 2.6.3"
std::string version();

// The largest instruction set that oneDNN's kernels use here: the processor's, or a smaller one that
// ONEDNN_MAX_CPU_ISA sets. "AVX2", "AVX512_CORE_AMX".
std::string instruction_set();

// The unit of the processor that multiplies bf16 for oneDNN: "AMX", "AVX512_BF16" or "none". The units differ
// in the bits of their results.
std::string bf16_unit();

// Throws WorkerError (EX_SOFTWARE).
void multiply(const Matmul<float>& matmul);

// Matmuls of bf16 that are summed in fp32. Keeps the primitive that oneDNN compiled for each shape, so that
// only the first matmul of a shape takes milliseconds. Used by one thread, which has called
// use_one_thread().
class Bf16Multiplier {
 public:
  Bf16Multiplier();
  ~Bf16Multiplier();

  // bias [n] is added to each row; null: none. Not with beta. Throws WorkerError (EX_SOFTWARE).
  void multiply(const Matmul<Bf16>& matmul, const float* bias = nullptr);

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// Whether oneDNN has kernels for matmuls of bf16 here: the processor has the instructions, and
// ONEDNN_MAX_CPU_ISA does not exclude them.
bool multiplies_bf16();

}  // namespace dtrun::worker::onednn
