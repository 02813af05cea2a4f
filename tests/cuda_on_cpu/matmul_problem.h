// A matmul as cuBLASLt's descriptors describe it, and checks whether the manual and the real library allow
// it.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda_on_cpu/matmul.h"
#include "tests/cuda_on_cpu/traffic.h"

namespace cuda_on_cpu {

// Returns `status`, and keeps the reason for matmul_refusal().
cublasStatus_t refuse(cublasStatus_t status, const std::string& why);
cublasStatus_t invalid(const std::string& why);      // CUBLAS_STATUS_INVALID_VALUE
cublasStatus_t unsupported(const std::string& why);  // CUBLAS_STATUS_NOT_SUPPORTED

// The content of the library's opaque structures. `kind` tells one from another.
enum class Kind : std::uint64_t { kDescription = 1, kLayout, kPreference };

struct Description {
  Kind kind = Kind::kDescription;
  std::int32_t compute = CUBLAS_COMPUTE_32F, scale = CUDA_R_32F;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};

struct Layout {
  Kind kind = Kind::kLayout;
  std::uint32_t type = CUDA_R_32F;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
};

struct Preference {
  Kind kind = Kind::kPreference;
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

struct Algorithm {
  std::uint32_t m = 0, n = 0, k = 0, epilogue = 0;  // of the matmul that the heuristic was asked for
  std::uint8_t types[4] = {0, 0, 0, 0}, transposed = 0;
  std::uint8_t alignment[4] = {0, 0, 0, 0};  // logarithms
  std::uint32_t splits = 1, tile = 0;
  bool loses_terms = false;
};

// A matmul's parameters, as far as they can be checked without its operands.
struct Problem {
  Description description;
  Layout a, b, c, d;
  std::uint64_t m = 0, n = 0, k = 0;

  std::uint32_t bias_type() const {
    return description.bias_type < 0 ? d.type : static_cast<std::uint32_t>(description.bias_type);
  }
};

struct Pointers {
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
};

// "tile 20, split 4".
std::string name_of(const Algorithm& algorithm);
// Bytes that a matmul with this algorithm needs.
std::size_t workspace_of(const Algorithm& algorithm, const Problem& problem);

// Sets m, n and k from the descriptions.
cublasStatus_t check_problem(Problem* problem);
// Whether a column of A, B or C, or the distance between two, is no multiple of 16 bytes, which cuBLAS' guide
// demands for the full speed of tensor cores (2.1.11). Does not check the pointers. Needs m, n and k.
bool misaligned(const Problem& problem);
cublasStatus_t check_algorithm(const Algorithm& algorithm, const Problem& problem);
// All memory lies in allocations of a device, is aligned as the algorithm was told, and D overlaps nothing
// but C.
cublasStatus_t check_pointers(const Problem& problem, const Algorithm& algorithm, float beta,
                              const Pointers& pointers);

Product product_of(const Problem& problem, const Algorithm& algorithm, float alpha, float beta,
                   const Pointers& pointers);

// As traffic.h lists it: operands in whole columns, up to the next one's begin.
Launch launch_of(const Product& product);

}  // namespace cuda_on_cpu
