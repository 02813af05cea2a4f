#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/pack.cuh"

namespace dtrun::worker::cuda {
namespace {

constexpr int kRows = 8;  // of a block of embedding(): a warp has one

template <int kCount, typename T>
__global__ void __launch_bounds__(kWarp* kRows)
    embedding_kernel(std::size_t rows, std::size_t width, const std::int32_t* tokens, const T* weight,
                     const T* positions, std::size_t length, T* out) {
  wait_for_previous();
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;
  const T* const from = weight + tokens[row] * width;
  const T* const position = positions == nullptr ? nullptr : positions + row % length * width;
  for (std::size_t i = threadIdx.x * kCount; i < width; i += kWarp * kCount) {
    Pack<T, kCount> x = load<kCount>(from + i);
    if (position != nullptr) {
      const Pack<T, kCount> y = load<kCount>(position + i);
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.v[e] = from_float<T>(to_float(x.v[e]) + to_float(y.v[e]));
    }
    store(out + row * width + i, x);
  }
}

constexpr int kWarps = 4;  // of a block of embedding_backward(): they share a run

// Run blockIdx.x, kWarp * kCount columns: warp w sums rows w, w + kWarps, … of the run, then the warps' sums
// are added in order. Most runs are short: then the other warps have nothing to do. Blocks without a run,
// too: how many runs there are stands in device memory, so that a launch is the same for each microbatch.
template <int kCount, typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    embedding_backward_kernel(std::size_t width, TokenRuns runs, const T* out_gradient, bool add,
                              float* weight_gradient) {
  wait_for_previous();
  constexpr int kColumns = kWarp * kCount;
  SHARED_ARRAY(float, sums, kWarps* kColumns);
  if (static_cast<std::int32_t>(blockIdx.x) >= *runs.count) return;
  const std::int32_t begin = runs.begins[blockIdx.x], end = runs.begins[blockIdx.x + 1];
  const std::size_t first = static_cast<std::size_t>(blockIdx.y) * kColumns;
  const std::size_t column = first + threadIdx.x * kCount;
  float own[kCount] = {};
  if (column < width) {
#pragma unroll 4
    for (std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.y); i < end; i += kWarps) {
      const Pack<T, kCount> x = load<kCount>(out_gradient + runs.order[i] * width + column);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] += to_float(x.v[e]);
    }
  }
  // Element e of lane l is at e * kWarp + l: no two lanes fight for a bank.
  for (int e = 0; e < kCount; ++e) sums[threadIdx.y * kColumns + e * kWarp + threadIdx.x] = own[e];
  __syncthreads();
  float* const to = weight_gradient + runs.ids[blockIdx.x] * width;
  const int used = end - begin < kWarps ? end - begin : kWarps;
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kColumns; i += kWarp * kWarps) {
    const std::size_t at = first + i;
    if (at >= width) continue;
    const int place = i % kCount * kWarp + i / kCount;
    float total = sums[place];
    for (int w = 1; w < used; ++w) total += sums[w * kColumns + place];
    to[at] = add ? to[at] + total : total;
  }
}

}  // namespace

template <typename T>
void embedding(cudaStream_t stream, std::size_t rows, std::size_t width, const std::int32_t* tokens,
               const T* weight, const T* positions, std::size_t length, T* out) {
  if (rows == 0) return;
  const bool packs = width % kWide<T> == 0 && wide({weight, positions, out});
  launch(packs ? embedding_kernel<kWide<T>, T> : embedding_kernel<1, T>, blocks_of(rows, kRows),
         dim3(kWarp, kRows), 0, stream, rows, width, tokens, weight, positions, length, out);
}

template <typename T>
void embedding_backward(cudaStream_t stream, std::size_t width, const TokenRuns& runs, const T* out_gradient,
                        bool add, float* weight_gradient) {
  if (runs.most == 0) return;
  const bool packs = width % kWide<T> == 0 && wide({out_gradient});
  const dim3 grid(static_cast<unsigned>(runs.most), blocks_of(width, kWarp * (packs ? kWide<T> : 1)));
  launch(packs ? embedding_backward_kernel<kWide<T>, T> : embedding_backward_kernel<1, T>, grid,
         dim3(kWarp, kWarps), 0, stream, width, runs, out_gradient, add, weight_gradient);
}

#define DTRUN_EMBEDDING(T)                                                                                 \
  template void embedding(cudaStream_t, std::size_t, std::size_t, const std::int32_t*, const T*, const T*, \
                          std::size_t, T*);                                                                \
  template void embedding_backward(cudaStream_t, std::size_t, const TokenRuns&, const T*, bool, float*);
DTRUN_EMBEDDING(float)
DTRUN_EMBEDDING(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
