#include <algorithm>

#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/partials.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kWarps = 8;

// Parts of the rows that are summed apart: about as many blocks as fill a GPU, each with work for its warps.
std::size_t parts_of(std::size_t rows, std::size_t width) {
  constexpr std::size_t kBlocks = 512, kColumns = 256, kLeastRows = 64;
  const std::size_t beside = (width + kColumns - 1) / kColumns;
  return std::clamp<std::size_t>(kBlocks / beside, 1, std::max<std::size_t>(rows / kLeastRows, 1));
}

// Part `blockIdx.y` of the rows, kWarp * kCount columns: warp w sums rows w, w + kWarps, … of the part, then
// the warps' sums are added in order.
template <int kCount, typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    sum_rows_kernel(std::size_t rows, std::size_t width, std::size_t rows_a_part, const T* in, bool add,
                    float* sum) {
  SHARED_ARRAY(float, sums, kWarps* kWarp* kCount);
  constexpr int kColumns = kWarp * kCount;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * kColumns;
  const std::size_t column = first + threadIdx.x * kCount;
  const std::size_t begin = blockIdx.y * rows_a_part;
  const std::size_t end = begin + rows_a_part < rows ? begin + rows_a_part : rows;
  float own[kCount] = {};
  if (column < width) {
#pragma unroll 4
    for (std::size_t row = begin + threadIdx.y; row < end; row += kWarps) {
      const Pack<T, kCount> x = load<kCount>(in + row * width + column);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] += to_float(x.v[e]);
    }
  }
  for (int e = 0; e < kCount; ++e) sums[threadIdx.y * kColumns + e * kWarp + threadIdx.x] = own[e];
  __syncthreads();
  // Element e of lane l is at e * kWarp + l: no two lanes fight for a bank.
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kColumns; i += kWarp * kWarps) {
    const std::size_t at = first + i;
    if (at >= width) continue;
    const int place = i % kCount * kWarp + i / kCount;
    float total = sums[place];
    for (int w = 1; w < kWarps; ++w) total += sums[w * kColumns + place];
    float* const to = sum + blockIdx.y * width + at;
    *to = add ? *to + total : total;
  }
}

}  // namespace

std::size_t sum_rows_workspace(std::size_t rows, std::size_t width) {
  const std::size_t parts = parts_of(rows, width);
  return parts == 1 ? 0 : parts * width;
}

template <typename T>
void sum_rows(cudaStream_t stream, std::size_t rows, std::size_t width, const T* in, bool add, float* sum,
              float* workspace) {
  if (width == 0) return;
  const std::size_t parts = parts_of(rows, width), rows_a_part = (rows + parts - 1) / parts;
  const bool packs = wide({in}) && width % kWide<T> == 0;
  const auto kernel = packs ? sum_rows_kernel<kWide<T>, T> : sum_rows_kernel<1, T>;
  const dim3 grid(blocks_of(width, kWarp * (packs ? kWide<T> : 1)), static_cast<unsigned>(parts));
  const bool direct = parts == 1;
  launch(kernel, grid, dim3(kWarp, kWarps), 0, stream, rows, width, rows_a_part, in, direct && add,
         direct ? sum : workspace);
  if (!direct) sum_partials(stream, parts, workspace, add, sum, width);
}

template void sum_rows(cudaStream_t, std::size_t, std::size_t, const float*, bool, float*, float*);
template void sum_rows(cudaStream_t, std::size_t, std::size_t, const __nv_bfloat16*, bool, float*, float*);

}  // namespace dtrun::worker::cuda
