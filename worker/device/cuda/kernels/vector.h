// The operations of an Arithmetic (worker/vector/arithmetic.h) on flat fp32 vectors. Compiled without
// contraction, with IEEE division and square root: element by element they give the bits of the CPU's loops
// (worker/vector/loops_impl.h). elementwise.h has the rules for all kernels; vectors need 4 bytes of
// alignment and are faster on 16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/core/tree.h"
#include "worker/vector/update.h"

namespace dtrun::worker::cuda {

// left[i] = left[i] + right[i].
void accumulate(cudaStream_t stream, float* left, const float* right, std::size_t floats);

// Limits of one launch: inputs, and sums that wait for their right neighbour.
inline constexpr int kTreeInputs = 256, kTreeDepth = 24;

// out[i] = the sum over inputs[0 .. sum.inputs)[i], in the plan's order. `out` may be one of the inputs.
// `sum` and `inputs` are read before this returns. REQUIRES: `sum` comes from plan_sum(), with at most
// kTreeInputs inputs and fewer than kTreeDepth temporaries.
void tree_sum(cudaStream_t stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
              std::size_t floats);

// values[i] /= count.
void mean(cudaStream_t stream, float* values, std::size_t floats, float count);

// *result (fp64) = the sum of (values[i] / *count)^2, the quotient rounded to fp32 as in mean(). `workspace`:
// kSquareNormWorkspace doubles, overwritten. The order follows from `floats` alone and is not that of the
// CPU.
inline constexpr std::size_t kSquareNormWorkspace = 1024;
void square_norm(cudaStream_t stream, const float* values, std::size_t floats, const float* count,
                 double* workspace, double* result);

// An optimizer's pass computes the gradient on the fly: sum / count, then * clip unless that is 1.
struct GradientScale {
  float count = 1, clip = 1;
};

// The optimizers of update.h, each in one pass over `size` floats. `sum` does not change. `copy`: null, or
// becomes the new parameters as bf16 (elementwise.h's to_bf16); needs 2 bytes of alignment.
// boundaries [2 * ranges] (device memory): elements from boundaries[2k] on and before boundaries[2k + 1]
// decay; ascending. ranges = 0: none decays. With SgdRule::decays_all they are not looked at.
void sgd(cudaStream_t stream, const SgdRule& rule, const GradientScale& scale,
         const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
         __nv_bfloat16* copy, std::size_t size);
void sgd_momentum(cudaStream_t stream, const SgdRule& rule, const GradientScale& scale,
                  const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
                  float* buffer, __nv_bfloat16* copy, std::size_t size);
void adamw(cudaStream_t stream, const AdamWRule& rule, const GradientScale& scale,
           const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
           float* mean, float* mean_square, __nv_bfloat16* copy, std::size_t size);

// The same operations as the CPU's on each of [means | variances], from a sum over `targets` targets.
void running_statistics(cudaStream_t stream, const RunningStatistics& statistics, float targets,
                        const float* sum, float* parameters);

}  // namespace dtrun::worker::cuda
