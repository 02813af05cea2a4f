// Each operation rounds as in worker/quantize/blocks.cc: this file must be compiled without contraction.
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/quantize.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kTall = 8, kThreads = kWarp * kTall;

// A block of threads takes one block of columns of kTall rows, in_first: of kWarp. A warp lies along what is
// stored side by side.
template <typename T>
__global__ void __launch_bounds__(kThreads) round_kernel(BlockedMatrix m, const float* in, T* out) {
  wait_for_previous();
  SHARED_ARRAY(float, found, kThreads);
  const int x = static_cast<int>(threadIdx.x) % kWarp, y = static_cast<int>(threadIdx.x) / kWarp;
  const int rows = m.in_first ? kWarp : kTall, lanes = m.in_first ? kTall : kWarp;
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * rows + (m.in_first ? x : y);
  const std::size_t first = blockIdx.y * m.block, left = m.columns - first;
  const std::size_t count = row >= m.rows ? 0 : left < m.block ? left : m.block;
  const std::size_t stride = m.in_first ? m.rows : 1, lane = m.in_first ? y : x;
  const std::size_t begin = row * (m.in_first ? 1 : m.columns) + first * stride;
  float largest = 0;
  for (std::size_t i = lane; i < count; i += lanes) {
    const float size = fabsf(in[begin + i * stride]);
    if (largest < size) largest = size;
  }
  found[threadIdx.x] = largest;
  __syncthreads();
  for (int other = 0; other < lanes; ++other) {
    const float size = found[m.in_first ? other * kWarp + x : y * kWarp + other];
    if (largest < size) largest = size;
  }
  const float last = static_cast<float>((1 << (m.bits - 1)) - 1);
  float scale = largest / (last + 0.5f);
  if (scale == 0) scale = 0x1p-23f;
  for (std::size_t i = lane; i < count; i += lanes) {
    constexpr float kRounds = 0x1.8p23f;  // adding it leaves a whole number, halves to even
    float step = (in[begin + i * stride] / scale + kRounds) - kRounds;
    step = step > last ? last : step < -last - 1 ? -last - 1 : step;
    out[begin + i * stride] = from_float<T>(step * scale);
  }
}

}  // namespace

template <typename T>
void round_matrix(cudaStream_t stream, const BlockedMatrix& matrix, const float* in, T* out) {
  const int rows = matrix.in_first ? kWarp : kTall;
  const dim3 blocks(static_cast<unsigned>((matrix.rows + rows - 1) / rows),
                    static_cast<unsigned>((matrix.columns + matrix.block - 1) / matrix.block));
  if (matrix.rows > 0 && matrix.columns > 0)
    launch(round_kernel<T>, blocks, kThreads, 0, stream, matrix, in, out);
}
template void round_matrix(cudaStream_t, const BlockedMatrix&, const float*, float*);
template void round_matrix(cudaStream_t, const BlockedMatrix&, const float*, __nv_bfloat16*);

}  // namespace dtrun::worker::cuda
