// A matmul on a GPU by itself: operands of its own, no better aligned than its shape says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/bench/bit_hash.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// "24 16 400 400t 16 16+ bf16>fp32 none 256/16/256/256": m, n, k; the strides of a, b and c, with `t` for a
// transposed one and `+` where the matmul is added to c; the types; the epilogue; the least alignments of a,
// b, c and the bias.
std::string title_of(const MatmulShape& shape);

// The matmul alone, where its epilogue sums rows or columns of an operand.
MatmulShape without_sums(MatmulShape shape);

class Multiplication {
 public:
  // `kept`: results that can be kept. !made() if there is no room.
  Multiplication(const MatmulShape& shape, CudaArithmetic& arithmetic, CudaStream& stream, int kept);

  bool made() const { return made_; }
  const MatmulShape& shape() const { return shape_; }

  // Numbers that are always the same. Memory that the matmul does not write keeps these values.
  void fill();
  void fill_results();
  void enqueue(Matmuls& matmuls, void* workspace) { enqueue(matmuls, workspace, stream_.handle()); }
  void enqueue(Matmuls& matmuls, void* workspace, cudaStream_t on);
  // The same without_sums(), which a kernel makes then. `workspace`: enough for both.
  void enqueue_apart(Matmuls& matmuls, void* workspace, cudaStream_t on);

  void keep(int place);
  // "" or how the result differs from what is kept. Zeros of both signs are alike. Waits.
  std::string difference(int place);
  // Adds all results of the matmul to the hash.
  void add_to(BitHash& hash) const;

 private:
  struct Result {
    const char* name;
    std::byte* data;
    std::size_t bytes;
    std::vector<Buffer> kept = {};
  };

  std::byte* allocate(CudaArithmetic& arithmetic, std::size_t bytes, int alignment);
  void scatter_as(bool bf16, std::byte* to, std::size_t bytes, unsigned seed, float largest);
  template <typename T>
  void sum_as(void* workspace, cudaStream_t on);
  template <typename T>
  std::string difference_as(const Result& result, const float* kept);

  const MatmulShape shape_;
  const OperandBytes bytes_;
  CudaStream& stream_;
  Trial trial_;
  std::vector<Buffer> memory_;
  bool made_ = true;
  std::byte *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *bias_ = nullptr, *aux_ = nullptr;
  Buffer apart_;
  std::vector<Result> results_;
};

}  // namespace dtrun::worker::cuda
