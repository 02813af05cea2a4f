#include <algorithm>

#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/partials.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kWarps = 8;

// The number of parts of the rows that are summed apart: about as many blocks as fill a GPU, each with work
// for its warps.
std::size_t parts_of(std::size_t rows, std::size_t width) {
  constexpr std::size_t kBlocks = 512, kColumns = 256, kLeastRows = 64;
  const std::size_t beside = (width + kColumns - 1) / kColumns;
  return std::clamp<std::size_t>(kBlocks / beside, 1, std::max<std::size_t>(rows / kLeastRows, 1));
}

// A block sums kWarp * kCount columns of part `blockIdx.y` of the rows: warp w sums rows w, w + kWarps, … of
// the part, then the warps' sums are added in order.
template <int kCount, typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    sum_rows_kernel(std::size_t rows, std::size_t width, std::size_t stride, std::size_t rows_a_part,
                    const T* in, bool add, float* sum) {
  wait_for_previous();
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
      const Pack<T, kCount> x = load<kCount>(in + row * stride + column);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] += to_float(x.v[e]);
    }
  }
  for (int e = 0; e < kCount; ++e) sums[threadIdx.y * kColumns + e * kWarp + threadIdx.x] = own[e];
  __syncthreads();
  // Element e of lane l is at e * kWarp + l, which avoids bank conflicts.
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

template <int kCount, typename T>
__global__ void add_row_kernel(std::size_t packs, std::size_t packs_a_row, std::size_t stride, const T* row,
                               T* values) {
  wait_for_previous();
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  const std::size_t column = i % packs_a_row * kCount;
  T* const at = values + i / packs_a_row * stride + column;
  Pack<T, kCount> x = load<kCount>(at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) x.v[e] = from_float<T>(to_float(x.v[e]) + to_float(row[column + e]));
  store(at, x);
}

}  // namespace

template <typename T>
void add_row(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* row,
             T* values) {
  if (rows == 0 || width == 0) return;
  constexpr unsigned kThreads = 256;
  const bool packs = wide({values}) && width % kWide<T> == 0 && stride % kWide<T> == 0;
  const std::size_t a_row = packs ? width / kWide<T> : width, count = rows * a_row;
  launch(packs ? add_row_kernel<kWide<T>, T> : add_row_kernel<1, T>, blocks_of(count, kThreads), kThreads, 0,
         stream, count, a_row, stride, row, values);
}

template void add_row(cudaStream_t, std::size_t, std::size_t, std::size_t, const float*, float*);
template void add_row(cudaStream_t, std::size_t, std::size_t, std::size_t, const __nv_bfloat16*,
                      __nv_bfloat16*);

std::size_t sum_rows_workspace(std::size_t rows, std::size_t width) {
  const std::size_t parts = parts_of(rows, width);
  return parts == 1 ? 0 : parts * width;
}

template <typename T>
void sum_rows(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* in,
              bool add, float* sum, float* workspace) {
  if (width == 0) return;
  const std::size_t parts = parts_of(rows, width), rows_a_part = (rows + parts - 1) / parts;
  const bool packs = wide({in}) && width % kWide<T> == 0 && stride % kWide<T> == 0;
  const auto kernel = packs ? sum_rows_kernel<kWide<T>, T> : sum_rows_kernel<1, T>;
  const dim3 grid(blocks_of(width, kWarp * (packs ? kWide<T> : 1)), static_cast<unsigned>(parts));
  const bool direct = parts == 1;
  launch(kernel, grid, dim3(kWarp, kWarps), 0, stream, rows, width, stride, rows_a_part, in, direct && add,
         direct ? sum : workspace);
  if (!direct) sum_partials(stream, parts, workspace, add, sum, width);
}

template void sum_rows(cudaStream_t, std::size_t, std::size_t, std::size_t, const float*, bool, float*,
                       float*);
template void sum_rows(cudaStream_t, std::size_t, std::size_t, std::size_t, const __nv_bfloat16*, bool,
                       float*, float*);

}  // namespace dtrun::worker::cuda
