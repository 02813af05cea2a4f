// The loss of rows of logits, with its gradient in place. elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dtrun::worker::cuda {

// logits: [rows][padded], of which the first `classes` columns count (padded >= classes); targets [rows], of
// which the first *real_rows count, each 0..classes-1. Overwrites for each row
//   loss     -log softmax(logits)[target]; with `smoothing` e the loss for (1 - e) onehot + e / classes, as
//            planned::Kernels::classify() does; NaN if a logit is NaN
//   correct  1 if the first largest logit is the target's, else 0
// and for a row >= *real_rows 0 and 0. With `gradient` the logits become the gradient of the summed loss,
// softmax minus the smoothed target, 0 in columns >= classes and in rows >= *real_rows; without, they stay.
template <typename T>
void classify(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, std::size_t classes,
              std::size_t padded, const std::int32_t* targets, float smoothing, bool gradient, T* logits,
              float* loss, float* correct);

// A teacher's logits [rows][padded], beside a student's, and what its word counts (worker/model/program.h).
template <typename T>
struct TeacherLogits {
  const T* logits = nullptr;
  std::size_t padded = 0;
  float temperature = 1, alpha = 0;
};

// classify() with `gradient`, of the loss with the teacher's in it: temperature and alpha as Teacher's.
// `correct` is the student's.
template <typename T>
void distill(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, std::size_t classes,
             std::size_t padded, const std::int32_t* targets, float smoothing,
             const TeacherLogits<T>& teacher, T* logits, float* loss, float* correct);

// out [kStatisticsFloats] (worker/vector/update.h) = the sums of loss and of correct [rows] (in fp64, in an
// order that `rows` decides), *real_rows, and zeros. rows = 0: zeros and *real_rows.
void statistics(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, const float* loss,
                const float* correct, float* out);

}  // namespace dtrun::worker::cuda
