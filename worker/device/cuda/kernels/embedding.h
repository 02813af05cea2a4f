// Embeddings of tokens, and their gradient without atomics: rows are sorted by token, so that one block of
// threads owns a token's gradient. See elementwise.h for what holds for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dtrun::worker::cuda {

// out[r] = weight[tokens[r]], plus positions[r % length] if `positions` is not null. out: [rows][width],
// weight: [classes][width], positions: [length][width], all T. REQUIRES: every token is a row of `weight`.
template <typename T>
void embedding(cudaStream_t stream, std::size_t rows, std::size_t width, const std::int32_t* tokens,
               const T* weight, const T* positions, std::size_t length, T* out);

// The rows of a microbatch sorted by token (worker/device/cuda/kernels/token_runs.h), on the device. Run k
// has token ids[k] and rows order[begins[k]] .. order[begins[k + 1] - 1].
struct TokenRuns {
  const std::int32_t* order = nullptr;   // [rows]
  const std::int32_t* begins = nullptr;  // [*count + 1]
  const std::int32_t* ids = nullptr;     // [*count]
  const std::int32_t* count = nullptr;   // different tokens
  std::size_t most = 0;                  // *count is never larger; the host's
};

// weight_gradient[ids[k]] = or += the sum of out_gradient's rows of run k, in an order that the run's length
// alone decides. out_gradient: [rows][width]; weight_gradient: [classes][width] of the flat gradient, whose
// other rows stay as they are: who overwrites fills them with 0 first.
template <typename T>
void embedding_backward(cudaStream_t stream, std::size_t width, const TokenRuns& runs, const T* out_gradient,
                        bool add, float* weight_gradient);

}  // namespace dtrun::worker::cuda
