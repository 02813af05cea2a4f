#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/token_runs.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kRows = 8;  // of a block of embedding(), one for each warp

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

constexpr int kWarps = 4;  // of a block of embedding_backward(), which share a piece

// A block sums kWarp * kCount columns of piece blockIdx.x: warp w sums rows w, w + kWarps, … of the piece,
// then the warps' sums are added in order and go to the gradient, or for a token with several pieces to
// partials [pieces][width]. Most pieces are short and leave the other warps idle, and some blocks have no
// piece: the number of pieces is in device memory, so that the launch is the same for each microbatch.
template <int kCount, typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    embedding_backward_kernel(std::size_t width, TokenPieces pieces, const T* out_gradient, bool add,
                              float* weight_gradient, float* partials) {
  wait_for_previous();
  constexpr int kColumns = kWarp * kCount;
  SHARED_ARRAY(float, sums, kWarps* kColumns);
  const auto piece = static_cast<std::int32_t>(blockIdx.x);
  if (piece >= pieces.counts[0]) return;
  const bool cut = piece < pieces.counts[1];
  const std::int32_t begin = pieces.begins[piece], end = pieces.begins[piece + 1];
  const std::size_t first = static_cast<std::size_t>(blockIdx.y) * kColumns;
  const std::size_t column = first + threadIdx.x * kCount;
  float own[kCount] = {};
  if (column < width) {
#pragma unroll 4
    for (std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.y); i < end; i += kWarps) {
      const Pack<T, kCount> x = load<kCount>(out_gradient + pieces.order[i] * width + column);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] += to_float(x.v[e]);
    }
  }
  // Element e of lane l is at e * kWarp + l, which avoids bank conflicts.
  for (int e = 0; e < kCount; ++e) sums[threadIdx.y * kColumns + e * kWarp + threadIdx.x] = own[e];
  __syncthreads();
  float* const to = cut ? partials + piece * width : weight_gradient + pieces.ids[piece] * width;
  const int used = end - begin < kWarps ? end - begin : kWarps;
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kColumns; i += kWarp * kWarps) {
    const std::size_t at = first + i;
    if (at >= width) continue;
    const int place = i % kCount * kWarp + i / kCount;
    float total = sums[place];
    for (int w = 1; w < used; ++w) total += sums[w * kColumns + place];
    to[at] = add && !cut ? to[at] + total : total;
  }
}

constexpr unsigned kThreads = 128;  // of a block of add_pieces_kernel()

// A block whose piece blockIdx.x is the first of several of a token adds the sums of the token's pieces in
// order, a column per thread.
__global__ void __launch_bounds__(kThreads)
    add_pieces_kernel(std::size_t width, TokenPieces pieces, const float* partials, bool add,
                      float* weight_gradient) {
  wait_for_previous();
  const auto first = static_cast<std::int32_t>(blockIdx.x), cut = pieces.counts[1];
  if (first >= cut) return;
  const std::int32_t id = pieces.ids[first];
  if (first > 0 && pieces.ids[first - 1] == id) return;
  const std::size_t column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= width) return;
  std::int32_t end = first + 1;
  while (end < cut && pieces.ids[end] == id) ++end;
  float total = partials[first * width + column];
#pragma unroll 8
  for (std::int32_t piece = first + 1; piece < end; ++piece) total += partials[piece * width + column];
  float* const to = weight_gradient + id * width + column;
  *to = add ? *to + total : total;
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

std::size_t embedding_backward_workspace(std::size_t rows, std::size_t width) {
  return most_cut_pieces(rows) * width;
}

template <typename T>
void embedding_backward(cudaStream_t stream, std::size_t width, const TokenPieces& pieces,
                        const T* out_gradient, bool add, float* weight_gradient, float* workspace) {
  if (pieces.most == 0) return;
  const bool packs = width % kWide<T> == 0 && wide({out_gradient});
  const dim3 grid(static_cast<unsigned>(pieces.most), blocks_of(width, kWarp * (packs ? kWide<T> : 1)));
  launch(packs ? embedding_backward_kernel<kWide<T>, T> : embedding_backward_kernel<1, T>, grid,
         dim3(kWarp, kWarps), 0, stream, width, pieces, out_gradient, add, weight_gradient, workspace);
  if (pieces.most_cut > 0)
    launch(add_pieces_kernel, dim3(static_cast<unsigned>(pieces.most_cut), blocks_of(width, kThreads)),
           kThreads, 0, stream, width, pieces, workspace, add, weight_gradient);
}

#define DTRUN_EMBEDDING(T)                                                                                 \
  template void embedding(cudaStream_t, std::size_t, std::size_t, const std::int32_t*, const T*, const T*, \
                          std::size_t, T*);                                                                \
  template void embedding_backward(cudaStream_t, std::size_t, const TokenPieces&, const T*, bool, float*,  \
                                   float*);
DTRUN_EMBEDDING(float)
DTRUN_EMBEDDING(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
