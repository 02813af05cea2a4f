// Matmuls of matrices by cuBLASLt. Which algorithm computes a shape follows from the shape, the GPU and the
// library's version: the committed table's, or else the first that is right of those that the library
// proposes under limits that are always the same; never a measurement. So a matmul has the same bits in
// every job on such GPUs.
#pragma once

#include <cublasLt.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/device/cuda/algorithms.h"
#include "worker/device/cuda/libraries/cublaslt.h"
#include "worker/device/cuda/matmul_shape.h"

namespace dtrun::worker::cuda {

// "64 x 768 x 3072 in bf16": m, n and k.
std::string name_of(const MatmulShape& shape);

struct Operands {
  const void *a, *b;
  void* c;
  void *bias, *aux;  // of shapes whose epilogue has them
};

// A GPU with the library that is in use, as platform_name() has it.
std::string platform_of(const cudaDeviceProp& gpu);

// Used by one thread at a time, on the GPU on which it was made.
class Matmuls {
 public:
  // What an algorithm may use of memory, in bytes. NVIDIA recommends as much for Hopper.
  static constexpr std::size_t kLargestWorkspace = std::size_t{32} << 20;
  // So many of the library's proposals are looked at.
  static constexpr int kProposals = 8;

  // `algorithms`: of this platform. One that the library refuses is told of in a warning, and not used.
  explicit Matmuls(Algorithms algorithms = {});
  ~Matmuls();
  Matmuls(const Matmuls&) = delete;

  // Whether the library has an algorithm for it. Slow the first time.
  bool can(const MatmulShape& shape);
  // The algorithm is not used any more: from now on the library's next proposal computes the shape. False if
  // there is none; then there is no algorithm for the shape.
  bool try_next(const MatmulShape& shape);
  // Bytes of memory that the algorithm uses besides.
  std::size_t workspace(const MatmulShape& shape);

  // For those who fill the table. What the library proposes under our limits, its first choice first: `most`
  // at most, none where there is no algorithm.
  std::vector<AlgorithmWords> proposals(const MatmulShape& shape, int most);
  // `algorithm` computes the shape from now on. "" or why it cannot; then nothing has changed.
  std::string use(const MatmulShape& shape, const AlgorithmWords& algorithm);

  // Enqueues. `memory`: workspace() bytes, at a multiple of 256, that are the stream's own. Throws
  // WorkerError if there is no algorithm.
  void multiply(const MatmulShape& shape, const Operands& operands, void* memory, cudaStream_t stream);

 private:
  // The library's objects for a shape.
  struct Prepared {
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;  // column by column
    std::optional<cublasLtMatmulHeuristicResult_t> chosen;
    std::optional<std::deque<cublasLtMatmulHeuristicResult_t>> next;  // proposals, once they are asked for
  };
  Prepared& prepared(const MatmulShape& shape);
  Prepared describe(const MatmulShape& shape);
  void choose_next(const MatmulShape& shape, Prepared& objects);
  std::vector<cublasLtMatmulHeuristicResult_t> ask(const MatmulShape& shape, const Prepared& objects,
                                                   int most);
  std::string use(const AlgorithmWords& algorithm, Prepared& objects);

  const CublasLt& library_ = cublas_lt();
  const Algorithms algorithms_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<MatmulShape, Prepared> prepared_;
};

}  // namespace dtrun::worker::cuda
