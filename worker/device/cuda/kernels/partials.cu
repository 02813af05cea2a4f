#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/partials.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kRows = 8;

// A block sums 32 columns; its row y of threads sums parts y, y + kRows, …, and the first row adds the rows'
// sums.
__global__ void __launch_bounds__(kWarp* kRows)
    sum_partials_kernel(std::size_t parts, std::size_t width, const float* partials, bool add, float* first,
                        std::size_t first_width, float* second) {
  wait_for_previous();
  SHARED_ARRAY(float, sums, kRows* kWarp);
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (std::size_t part = threadIdx.y; part < parts; part += kRows) sum += partials[part * width + column];
  }
  sums[threadIdx.y * kWarp + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width || (column >= first_width && second == nullptr)) return;
  for (int y = 1; y < kRows; ++y) sum += sums[y * kWarp + threadIdx.x];
  float* const to = column < first_width ? first + column : second + (column - first_width);
  *to = add ? *to + sum : sum;
}

}  // namespace

void sum_partials(cudaStream_t stream, std::size_t parts, const float* partials, bool add, float* first,
                  std::size_t first_width, float* second, std::size_t second_width) {
  const std::size_t width = first_width + second_width;
  launch(sum_partials_kernel, blocks_of(width, kWarp), dim3(kWarp, kRows), 0, stream, parts, width, partials,
         add, first, first_width, second);
}

}  // namespace dtrun::worker::cuda
