#include "tests/cuda_on_cpu/matmul.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

// The operands were copied: sanitizers have seen those reads, and would make this ten times slower.
#define UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

constexpr std::size_t kRows = 16, kColumns = 4;  // of D that are summed at once, in registers

float load(const Matrix& matrix, std::size_t at) {
  return matrix.type == CUDA_R_32F ? static_cast<const float*>(matrix.data)[at]
                                   : __bfloat162float(static_cast<const __nv_bfloat16*>(matrix.data)[at]);
}

void store(void* data, cudaDataType_t type, std::size_t at, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  }
}

// As GPT-2 has it, and cuBLASLt: by tanh.
constexpr float kRootOf2OverPi = 0.7978845608028654f, kCubic = 0.044715f;
float gelu(float x) { return 0.5f * x * (1 + std::tanh(kRootOf2OverPi * (x + kCubic * x * x * x))); }
float gelu_derivative(float x) {
  const float t = std::tanh(kRootOf2OverPi * (x + kCubic * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kRootOf2OverPi * (1 + 3 * kCubic * x * x);
}

// Eight numbers at once; compilers do not find the good order by themselves.
constexpr std::size_t kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using LanesInMemory =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

// sums[column][row] += the sum over k in [begin, end) of a[k][row] b[k][column]; kRows and kColumns wide.
UNSANITIZED inline __attribute__((always_inline)) void add_block(const float* a, std::size_t a_stride,
                                                                 const float* b, std::size_t b_stride,
                                                                 std::size_t begin, std::size_t end,
                                                                 float* sums) {
  constexpr std::size_t kParts = kRows / kLanes;
  Lanes part[kColumns][kParts] = {};
  for (std::size_t k = begin; k < end; ++k) {
    const auto* const row = reinterpret_cast<const LanesInMemory*>(a + k * a_stride);
    for (std::size_t j = 0; j < kColumns; ++j) {
      for (std::size_t i = 0; i < kParts; ++i) part[j][i] += b[k * b_stride + j] * row[i];
    }
  }
  for (std::size_t j = 0; j < kColumns; ++j) {
    for (std::size_t i = 0; i < kParts; ++i)
      reinterpret_cast<LanesInMemory*>(sums)[j * kParts + i] += part[j][i];
  }
}

using AddBlock = void(const float*, std::size_t, const float*, std::size_t, std::size_t, std::size_t, float*);

UNSANITIZED void add_block_baseline(const float* a, std::size_t a_stride, const float* b,
                                    std::size_t b_stride, std::size_t begin, std::size_t end, float* sums) {
  add_block(a, a_stride, b, b_stride, begin, end, sums);
}
#if defined(__x86_64__)
// The same operations, eight at a time.
UNSANITIZED __attribute__((target("avx2"))) void add_block_avx2(const float* a, std::size_t a_stride,
                                                                const float* b, std::size_t b_stride,
                                                                std::size_t begin, std::size_t end,
                                                                float* sums) {
  add_block(a, a_stride, b, b_stride, begin, end, sums);
}
AddBlock* add_block_of_processor() {
  return __builtin_cpu_supports("avx2") ? add_block_avx2 : add_block_baseline;
}
#else
AddBlock* add_block_of_processor() { return add_block_baseline; }
#endif

std::size_t padded(std::size_t count, std::size_t to) { return (count + to - 1) / to * to; }

// op(A) as [k][m] and op(B) as [k][n] in fp32, zeros up to whole blocks; and D's sums as [n][m].
class Operands {
 public:
  explicit Operands(const Product& p)
      : p_(p),
        rows_(padded(p.m, kRows)),
        columns_(padded(p.n, kColumns)),
        a_(p.k * rows_),
        b_(p.k * columns_) {
    gather(p.a, p.m, !p.transposed_a, rows_, a_);
    gather(p.b, p.n, p.transposed_b, columns_, b_);
  }

  // sums[j * m + i] of alpha-less D.
  std::vector<float> sums() const {
    static AddBlock* const add = add_block_of_processor();
    std::vector<float> result(p_.m * p_.n);
    for (std::size_t j = 0; j < p_.n; j += kColumns) {
      for (std::size_t i = 0; i < p_.m; i += kRows) {
        // Clang 14 stores to it as if it were aligned like Lanes, whatever LanesInMemory says.
        alignas(Lanes) float block[kColumns * kRows] = {};
        for (std::size_t part = 0; part < p_.splits; ++part) {
          add(&a_[i], rows_, &b_[j], columns_, part * p_.k / p_.splits, (part + 1) * p_.k / p_.splits, block);
        }
        for (std::size_t column = 0; column < kColumns && j + column < p_.n; ++column) {
          std::copy_n(block + column * kRows, std::min(kRows, p_.m - i), &result[(j + column) * p_.m + i]);
        }
      }
    }
    return result;
  }

  // Row by row of op(A), and column by column of op(B).
  std::vector<float> sums_of_a() const { return sums_over_k(a_, p_.m, rows_); }
  std::vector<float> sums_of_b() const { return sums_over_k(b_, p_.n, columns_); }

 private:
  // to[k * stride + i] from a matrix that has i along its columns, or else k.
  void gather(const Matrix& from, std::size_t count, bool along, std::size_t stride,
              std::vector<float>& to) const {
    for (std::size_t outer = 0; outer < (along ? p_.k : count); ++outer) {
      for (std::size_t inner = 0; inner < (along ? count : p_.k); ++inner) {
        const std::size_t k = along ? outer : inner, i = along ? inner : outer;
        to[k * stride + i] = load(from, outer * from.ld + inner);
      }
    }
  }
  std::vector<float> sums_over_k(const std::vector<float>& from, std::size_t count,
                                 std::size_t stride) const {
    std::vector<float> sums(count);
    for (std::size_t k = 0; k < p_.k; ++k) {
      for (std::size_t i = 0; i < count; ++i) sums[i] += from[k * stride + i];
    }
    return sums;
  }

  const Product& p_;
  std::size_t rows_, columns_;
  std::vector<float> a_, b_;
};

void store_all(const Product& p, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) store(p.bias, p.bias_type, i, values[i]);
}

float finish(const Product& p, float value, std::size_t i, std::size_t j) {
  const unsigned epilogue = p.epilogue;
  const std::size_t at_aux = j * p.aux.ld + i;
  if (epilogue & CUBLASLT_EPILOGUE_BIAS) value += load({p.bias, p.bias_type}, i);
  if (epilogue & CUBLASLT_EPILOGUE_RELU) value = std::max(value, 0.0f);
  if (epilogue & CUBLASLT_EPILOGUE_GELU) {
    store(const_cast<void*>(p.aux.data), p.aux.type, at_aux, value);
    value = gelu(value);
  }
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) value *= gelu_derivative(load(p.aux, at_aux));
  return value;
}

}  // namespace

std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

void multiply(const Product& whole) {
  Product p = whole;
  p.k -= std::min<std::size_t>(p.k, settings.lost_terms + p.lost_terms);
  if (p.workspace_bytes > 0) std::memset(p.workspace, 0xff, p.workspace_bytes);
  const Operands operands(p);
  const std::vector<float> sums = operands.sums();
  for (std::size_t j = 0; j < p.n; ++j) {
    for (std::size_t i = 0; i < p.m; ++i) {
      float value = p.alpha * sums[j * p.m + i];
      if (p.beta != 0) value += p.beta * load(p.c, j * p.c.ld + i);
      store(const_cast<void*>(p.d.data), p.d.type, j * p.d.ld + i, finish(p, value, i, j));
    }
  }
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) store_all(p, operands.sums_of_a());
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB) store_all(p, operands.sums_of_b());
}

}  // namespace cuda_on_cpu
