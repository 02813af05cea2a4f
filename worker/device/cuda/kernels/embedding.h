// Embeddings of tokens, and their gradient without atomics: rows are sorted by token, so that one block of
// threads owns a token's gradient. elementwise.h has the rules for all kernels.
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
// side by side; the pieces of tokens that have several come first.
struct TokenPieces {
  const std::int32_t* order = nullptr;   // [rows]
  const std::int32_t* begins = nullptr;  // [counts[0] + 1]
  const std::int32_t* ids = nullptr;     // [counts[0]]
  const std::int32_t* counts = nullptr;  // of all pieces, and of the pieces of tokens that have several
  std::size_t most = 0, most_cut = 0;    // upper bounds of the counts, known to the host
};

// weight_gradient[t] = or += the sum of out_gradient's rows with token t, in an order that their number alone
// decides. out_gradient: [rows][width]; weight_gradient: [classes][width] of the flat gradient, whose other
// rows do not change: a caller that overwrites fills them with 0 first. `workspace`:
// embedding_backward_workspace() floats for the microbatch's rows, overwritten; may be null if that is 0.
template <typename T>
void embedding_backward(cudaStream_t stream, std::size_t width, const TokenPieces& pieces,
                        const T* out_gradient, bool add, float* weight_gradient, float* workspace);
std::size_t embedding_backward_workspace(std::size_t rows, std::size_t width);

}  // namespace dtrun::worker::cuda
