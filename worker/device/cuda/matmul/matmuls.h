// Matmuls by cuBLASLt. The algorithm for a shape follows from the shape, the GPU and the library's version:
// the first right one among the library's proposals under fixed limits, never the result of a measurement. A
// matmul therefore has the same bits in every job on such GPUs.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "worker/device/cuda/libraries/cublaslt.h"
#include "worker/device/cuda/steps.h"

namespace dtrun::worker::cuda {

// "64 x 768 x 3072 in bf16": m, n and k.
std::string name_of(const MatmulShape& shape);

struct Operands {
  const void *a, *b;
  void* c;
  void *bias, *aux;  // for epilogues that use them
};

// A GPU with the library in use, "NVIDIA H200, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0": the
// beginning of a device's fingerprint.
std::string platform_of(const cudaDeviceProp& gpu);

// Used by one thread at a time, on the GPU that was current at construction.
class Matmuls {
 public:
  // The most memory of an algorithm, in bytes; NVIDIA's recommendation for Hopper.
  static constexpr std::size_t kLargestWorkspace = std::size_t{32} << 20;
  // The number of the library's proposals that are considered.
  static constexpr int kProposals = 8;

  Matmuls();
  ~Matmuls();
  Matmuls(const Matmuls&) = delete;

  // Whether the library has an algorithm for the matmul. Slow the first time.
  bool can(const MatmulShape& shape);
  // Replaces the shape's algorithm by the library's next proposal. False if there is none; the shape then has
  // no algorithm.
  bool try_next(const MatmulShape& shape);
  // Bytes of the algorithm's workspace.
  std::size_t workspace(const MatmulShape& shape);

  // Enqueues. `memory`: workspace() bytes, at a multiple of 256, that only the stream uses. Throws
  // WorkerError if there is no algorithm.
  void multiply(const MatmulShape& shape, const Operands& operands, void* memory, cudaStream_t stream);

 private:
  // The library's objects for a shape.
  struct Prepared {
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;  // column-major
    std::optional<cublasLtMatmulHeuristicResult_t> chosen;
    std::optional<std::deque<cublasLtMatmulHeuristicResult_t>> next;  // proposals, once requested
  };
  Prepared& prepared(const MatmulShape& shape);
  Prepared describe(const MatmulShape& shape);
  void choose_next(const MatmulShape& shape, Prepared& objects);
  std::deque<cublasLtMatmulHeuristicResult_t> ask(const MatmulShape& shape, const Prepared& objects);

  const CublasLt& library_ = cublas_lt();
  cublasLtHandle_t handle_ = nullptr;
  std::map<MatmulShape, Prepared> prepared_;
};

}  // namespace dtrun::worker::cuda
