// Each operation rounds as in worker/quantize/blocks.cc: this file must be compiled without contraction.
#include <cuda_fp16.h>

#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/quantize.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kTall = 8, kThreads = kWarp * kTall;
constexpr std::size_t kBlock = 32;  // columns

// A block of threads takes one block of columns of kTall rows, in_first: of kWarp. A warp lies along what is
// stored side by side.
template <typename T>
__global__ void __launch_bounds__(kThreads) round_kernel(BlockedMatrix m, const float* in, T* out) {
  wait_for_previous();
  SHARED_ARRAY(float, weights, kWarp* kBlock);
  const int x = static_cast<int>(threadIdx.x) % kWarp, y = static_cast<int>(threadIdx.x) / kWarp;
  const int rows = m.in_first ? kWarp : kTall, lanes = m.in_first ? kTall : kWarp;
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * rows + (m.in_first ? x : y);
  const std::size_t first = blockIdx.y * kBlock, left = m.columns - first;
  const std::size_t count = row >= m.rows ? 0 : left < kBlock ? left : kBlock;
  const std::size_t stride = m.in_first ? m.rows : 1, lane = m.in_first ? y : x;
  const std::size_t begin = row * (m.in_first ? 1 : m.columns) + first * stride;
  float* const own = weights + (m.in_first ? x : y * kBlock);
  const std::size_t own_stride = m.in_first ? kWarp : 1;
  for (std::size_t i = lane; i < count; i += lanes) own[i * own_stride] = in[begin + i * stride];
  __syncthreads();
  float largest = 0;  // the first of them
  for (std::size_t i = 0; i < count; ++i)
    if (fabsf(own[i * own_stride]) > fabsf(largest)) largest = own[i * own_stride];
  const float scale = m.four_bits ? largest / -8 : fabsf(largest) / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale, stored = __half2float(__float2half_rn(scale));
  for (std::size_t i = lane; i < count; i += lanes) {
    const float steps = own[i * own_stride] * inverse;
    float step = m.four_bits ? truncf(steps + 8.5f) - 8 : roundf(steps);
    if (m.four_bits && step > 7) step = 7;
    out[begin + i * stride] = from_float<T>(step * stored);
  }
}

}  // namespace

template <typename T>
void round_matrix(cudaStream_t stream, const BlockedMatrix& matrix, const float* in, T* out) {
  const int rows = matrix.in_first ? kWarp : kTall;
  const dim3 blocks(static_cast<unsigned>((matrix.rows + rows - 1) / rows),
                    static_cast<unsigned>((matrix.columns + kBlock - 1) / kBlock));
  if (matrix.rows > 0 && matrix.columns > 0)
    launch(round_kernel<T>, blocks, kThreads, 0, stream, matrix, in, out);
}
template void round_matrix(cudaStream_t, const BlockedMatrix&, const float*, float*);
template void round_matrix(cudaStream_t, const BlockedMatrix&, const float*, __nv_bfloat16*);

}  // namespace dtrun::worker::cuda
