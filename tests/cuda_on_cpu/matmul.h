// A matmul with cuBLASLt's epilogues, computed. cublaslt.cc has checked the arguments.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

// Column by column: element (i, j) is data[j * ld + i].
struct Matrix {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;  // or CUDA_R_16BF
  std::size_t ld = 0;
};

// D = epilogue(alpha op(A) op(B) + beta C), D: m x n, the sum over k of them.
struct Product {
  std::size_t m = 0, n = 0, k = 0;
  bool transposed_a = false, transposed_b = false;
  float alpha = 1, beta = 0;
  Matrix a, b, c;
  Matrix d;  // is written to
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  // Bias, read or its gradient written: m of them, n for BGRADB.
  void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
  Matrix aux;  // GELU's input, m x n
  // k is cut into so many parts; each is summed in fp32, and then the parts.
  std::size_t splits = 1;
  std::size_t lost_terms = 0;  // the last ones of each sum
  // That much of it is overwritten.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

// Sums are fp32, over k upwards within a part, so bits depend on the shape and `splits` alone.
// Multiplications and additions are rounded apart.
void multiply(const Product& product);

std::size_t bytes_of(cudaDataType_t type);

}  // namespace cuda_on_cpu
