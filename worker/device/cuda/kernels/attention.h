// Causal self-attention in fp32, tiled through shared memory: the reference, and the fallback where cuDNN
// cannot run. elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>

namespace dtrun::worker::cuda {

inline constexpr int kLargestHead = 256;

// Rows are [samples][tokens]; a row of the input is [query | key | value] of `width()` each, head after head.
struct AttentionShape {
  int samples = 0, tokens = 0, heads = 0;
  int head_size = 0;  // 1..kLargestHead
  int width() const { return heads * head_size; }
  auto operator<=>(const AttentionShape&) const = default;
};

// out: [samples * tokens][width] = softmax(query key^T / sqrt(head_size)) value, each token seeing itself and
// those before it. Overwrites statistics [samples][heads][tokens]: the natural logarithm of the sum of
// e^score, which backward reads. REQUIRES: samples and heads <= 65535.
template <typename T>
void attention(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* out, float* statistics);

// Overwrites qkv_gradient [samples * tokens][3 * width], which must overlap no other argument. `out` and
// `statistics`: the results of attention(). `workspace`: as many floats as `statistics`, overwritten.
template <typename T>
void attention_backward(cudaStream_t stream, const AttentionShape& shape, const T* qkv, const T* out,
                        const T* out_gradient, const float* statistics, T* qkv_gradient, float* workspace);

// Floats of `statistics`, and of backward's workspace.
inline std::size_t attention_statistics(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.samples) * shape.heads * shape.tokens;
}

}  // namespace dtrun::worker::cuda
