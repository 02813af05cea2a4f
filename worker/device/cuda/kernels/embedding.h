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

// The rows of a microbatch sorted by token, and cut where a token has many (token_runs.h), on the device.
// Piece k has token ids[k] and rows order[begins[k]] .. order[begins[k + 1] - 1]. The pieces of a token lie
// side by side; those of tokens that have several are the first ones.
struct TokenPieces {
  const std::int32_t* order = nullptr;   // [rows]
  const std::int32_t* begins = nullptr;  // [counts[0] + 1]
  const std::int32_t* ids = nullptr;     // [counts[0]]
  const std::int32_t* counts = nullptr;  // all pieces, and those of tokens that have several
  std::size_t most = 0, most_cut = 0;    // the counts are never larger; the host's
};

// weight_gradient[t] = or += the sum of out_gradient's rows with token t, in an order that their number alone
// decides. out_gradient: [rows][width]; weight_gradient: [classes][width] of the flat gradient, whose other
// rows stay as they are: who overwrites fills them with 0 first. `workspace`: so many floats for a microbatch
// of so many rows, overwritten; may be null if that is 0.
template <typename T>
void embedding_backward(cudaStream_t stream, std::size_t width, const TokenPieces& pieces,
                        const T* out_gradient, bool add, float* weight_gradient, float* workspace);
std::size_t embedding_backward_workspace(std::size_t rows, std::size_t width);

}  // namespace dtrun::worker::cuda
