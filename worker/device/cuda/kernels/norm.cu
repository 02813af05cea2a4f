// A warp computes a row, a lane every 32nd pack of it. Packs that a lane needs again stay in its registers if
// the row is short enough, else the lane reads them again.
#include <algorithm>
#include <type_traits>

#include "worker/device/cuda/kernels/norm.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/partials.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kWarps = 8;  // of a block, if shared memory for all of them fits

// Calls f(k, i) for the lane's k-th pack, number i of the row. kKept: the most packs of a lane; 0: any
// number.
template <int kKept, typename F>
__device__ void each_pack(int packs, const F& f) {
  if constexpr (kKept > 0) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int i = threadIdx.x + k * kWarp;
      if (i < packs) f(k, i);
    }
  } else {
#pragma unroll 1
    for (int k = 0, i = threadIdx.x; i < packs; ++k, i += kWarp) f(k, i);
  }
}

// The packs of a row that a lane keeps; none with kKept = 0.
template <int kCount, int kKept, typename T>
struct Kept {
  Pack<T, kCount> packs[kKept > 0 ? kKept : 1];
  __device__ void put(int k, const Pack<T, kCount>& pack) {
    if constexpr (kKept > 0) packs[k] = pack;
  }
  __device__ Pack<T, kCount> get(int k, const T* from) const {
    if constexpr (kKept > 0) return packs[k];
    return load<kCount>(from);
  }
};

// `right` and `sum` belong to the residual addition, which is left out if `right` is null.
template <int kCount, int kKept, typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    layer_norm_kernel(std::size_t rows, int width, float epsilon, const T* left, const T* right,
                      const float* weight, const float* bias, T* sum, float* moments, T* out) {
  wait_for_previous();
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * kWarps + threadIdx.y, at = row * width;
  if (row >= rows) return;
  const int packs = width / kCount;
  const T* const x = right == nullptr ? left + at : sum + at;
  Kept<kCount, kKept, T> kept;
  float total = 0;
  each_pack<kKept>(packs, [&](int k, int i) {
    Pack<T, kCount> pack = load<kCount>(left + at + i * kCount);
    if (right != nullptr) {
      const Pack<T, kCount> other = load<kCount>(right + at + i * kCount);
#pragma unroll
      for (int e = 0; e < kCount; ++e) pack.v[e] = from_float<T>(to_float(pack.v[e]) + to_float(other.v[e]));
      store(sum + at + i * kCount, pack);
    }
    kept.put(k, pack);
#pragma unroll
    for (int e = 0; e < kCount; ++e) total += to_float(pack.v[e]);
  });
  const float mean = warp_sum(total) / static_cast<float>(width);
  float squares = 0;
  each_pack<kKept>(packs, [&](int k, int i) {
    const Pack<T, kCount> pack = kept.get(k, x + i * kCount);
#pragma unroll
    for (int e = 0; e < kCount; ++e) squares += (to_float(pack.v[e]) - mean) * (to_float(pack.v[e]) - mean);
  });
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) moments[2 * row] = mean, moments[2 * row + 1] = scale;
  each_pack<kKept>(packs, [&](int k, int i) {
    Pack<T, kCount> pack = kept.get(k, x + i * kCount);
    const Pack<float, kCount> w = load<kCount>(weight + i * kCount), b = load<kCount>(bias + i * kCount);
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      pack.v[e] = from_float<T>((to_float(pack.v[e]) - mean) * scale * w.v[e] + b.v[e]);
    store(out + at + i * kCount, pack);
  });
}

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// The kernel for rows of this width: pick(elements of a pack, packs that a lane keeps), as constants. There
// are few instances, and each takes registers for its largest row.
template <typename T, typename Pick>
auto by_width(std::size_t width, bool packs, const Pick& pick) {
  const std::size_t a_lane = (width / kWide<T> + kWarp - 1) / kWarp;
  if (!packs) return pick(Constant<1>{}, Constant<0>{});
  if (a_lane <= 4) return pick(Constant<kWide<T>>{}, Constant<4>{});
  if (a_lane <= 8) return pick(Constant<kWide<T>>{}, Constant<8>{});
  return pick(Constant<kWide<T>>{}, Constant<0>{});
}

template <typename T>
void norm(cudaStream_t stream, std::size_t rows, std::size_t width, float epsilon, const T* left,
          const T* right, const float* weight, const float* bias, T* sum, float* moments, T* out) {
  if (rows == 0) return;
  const bool packs = width % kWide<T> == 0 && wide({left, right, weight, bias, sum, out});
  const auto kernel =
      by_width<T>(width, packs, [](auto count, auto kept) { return layer_norm_kernel<count, kept, T>; });
  launch(kernel, blocks_of(rows, kWarps), dim3(kWarp, kWarps), 0, stream, rows, static_cast<int>(width),
         epsilon, left, right, weight, bias, sum, moments, out);
}

// ---- backward

// The shape of backward's first stage. A warp has its own sums for the two gradients of the parameters, in
// shared memory; for very wide rows a block has only one warp, whose sums are in the workspace.
struct Backward {
  int warps = kWarps;  // 0: one, with its sums in the workspace
  std::size_t blocks;
  std::size_t shared_bytes = 0;
  Backward(std::size_t rows, std::size_t width) {
    constexpr std::size_t kSharedBytes = 48 * 1024;
    // One wave of an H100 or H200 with 4 blocks on each of its 132 SMs; the same on all GPUs, since the sums'
    // bits depend on it.
    constexpr std::size_t kMostBlocks = 2 * 264;
    // Whole packs for every lane, for either type T: the layout must not depend on T.
    const std::size_t slots = (width + 8 * kWarp - 1) / (8 * kWarp) * (8 * kWarp);
    const std::size_t a_warp = 2 * slots * sizeof(float);
    while (warps > 0 && warps * a_warp > kSharedBytes) warps /= 2;
    shared_bytes = warps * a_warp;
    const std::size_t at_once = std::max(warps, 1);
    blocks = std::min(kMostBlocks, (rows + at_once - 1) / at_once);
  }
};

// For short rows 4 blocks must fit on an SM, with 64 registers a thread; 0: the compiler chooses.
template <int kKept>
[[maybe_unused]] constexpr int kBlocksAnSm = kKept == 4 ? 4 : 0;

// Warp w of block b handles row b * warps + w and every (gridDim.x * warps)-th row behind it. The block
// leaves the sums of its rows in partials [gridDim.x][weight, bias][width]. A lane keeps its packs of `in`,
// but reads those of `out_gradient` again, from the caches: kept, they would take the registers of half the
// blocks.
template <int kCount, int kKept, typename T>
__global__ void __launch_bounds__(kWarp* kWarps, kBlocksAnSm<kKept>)
    layer_norm_backward_kernel(std::size_t rows, int width, int warps, const T* in, const float* weight,
                               const float* moments, const T* out_gradient, bool add, T* in_gradient,
                               float* partials) {
  wait_for_previous();
  DYNAMIC_SHARED(float, shared);
  const int packs = width / kCount;
  // Element e of the lane's pack k is at (k * kCount + e) * kWarp + lane, which avoids bank conflicts; in the
  // workspace it is at its column.
  const int slots = (packs + kWarp - 1) / kWarp * kWarp * kCount;
  float* const partial = partials + static_cast<std::size_t>(blockIdx.x) * 2 * width;
  const bool in_shared = kKept > 0 || warps > 0;  // only short rows are kept
  float* const own = in_shared ? shared + threadIdx.y * 2 * slots : partial;
  const int bias = in_shared ? slots : width;  // offset of the sums for the bias' gradient
  const auto place = [&](int k, int i, int e) {
    return in_shared ? (k * kCount + e) * kWarp + static_cast<int>(threadIdx.x) : i * kCount + e;
  };
  each_pack<kKept>(packs, [&](int k, int i) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) own[place(k, i, e)] = own[bias + place(k, i, e)] = 0;
  });
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.y;
  for (std::size_t row = static_cast<std::size_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += step) {
    const T* const x = in + row * width;
    const T* const d = out_gradient + row * width;
    T* const to = in_gradient == nullptr ? nullptr : in_gradient + row * width;
    const float mean = moments[2 * row], scale = moments[2 * row + 1];
    Kept<kCount, kKept, T> kept;
    float sum_d = 0, sum_dx = 0;
    each_pack<kKept>(packs, [&](int k, int i) {
      const Pack<T, kCount> pack_x = load<kCount>(x + i * kCount), pack_d = load<kCount>(d + i * kCount);
      const Pack<float, kCount> w = load<kCount>(weight + i * kCount);
      kept.put(k, pack_x);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const float gradient = to_float(pack_d.v[e]), normal = (to_float(pack_x.v[e]) - mean) * scale;
        own[place(k, i, e)] += gradient * normal;
        own[bias + place(k, i, e)] += gradient;
        sum_d += gradient * w.v[e];
        sum_dx += gradient * w.v[e] * normal;
      }
    });
    if (to == nullptr) continue;
    const float mean_d = warp_sum(sum_d) / static_cast<float>(width);
    const float mean_dx = warp_sum(sum_dx) / static_cast<float>(width);
    each_pack<kKept>(packs, [&](int k, int i) {
      const Pack<T, kCount> pack_x = kept.get(k, x + i * kCount), pack_d = load<kCount>(d + i * kCount);
      const Pack<float, kCount> w = load<kCount>(weight + i * kCount);
      Pack<T, kCount> result;
      if (add) result = load<kCount>(to + i * kCount);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const float normal = (to_float(pack_x.v[e]) - mean) * scale;
        const float value = scale * (to_float(pack_d.v[e]) * w.v[e] - mean_d - normal * mean_dx);
        result.v[e] = from_float<T>(add ? to_float(result.v[e]) + value : value);
      }
      store(to + i * kCount, result);
    });
  }
  if (!in_shared) return;
  __syncthreads();
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < 2 * width; i += warps * kWarp) {
    const int column = i < width ? i : i - width, pack = column / kCount;
    const int slot =
        (pack / kWarp * kCount + column % kCount) * kWarp + pack % kWarp + (i < width ? 0 : slots);
    float sum = shared[slot];
    for (int w = 1; w < warps; ++w) sum += shared[w * 2 * slots + slot];
    partial[i] = sum;
  }
}

}  // namespace

template <typename T>
void layer_norm(cudaStream_t stream, std::size_t rows, std::size_t width, float epsilon, const T* in,
                const float* weight, const float* bias, float* moments, T* out) {
  norm<T>(stream, rows, width, epsilon, in, nullptr, weight, bias, nullptr, moments, out);
}

template <typename T>
void residual_layer_norm(cudaStream_t stream, std::size_t rows, std::size_t width, float epsilon,
                         const T* left, const T* right, const float* weight, const float* bias, T* sum,
                         float* moments, T* out) {
  norm<T>(stream, rows, width, epsilon, left, right, weight, bias, sum, moments, out);
}

std::size_t layer_norm_backward_workspace(std::size_t rows, std::size_t width) {
  return Backward(rows, width).blocks * 2 * width;
}

template <typename T>
void layer_norm_backward(cudaStream_t stream, std::size_t rows, std::size_t width, const T* in,
                         const float* weight, const float* moments, const T* out_gradient, bool add,
                         T* in_gradient, bool add_parameters, float* weight_gradient, float* bias_gradient,
                         float* workspace) {
  const Backward shape(rows, width);
  if (shape.blocks > 0) {
    const bool packs = width % kWide<T> == 0 && wide({in, weight, out_gradient, in_gradient});
    const auto kernel = by_width<T>(
        width, packs, [](auto count, auto kept) { return layer_norm_backward_kernel<count, kept, T>; });
    launch(kernel, static_cast<unsigned>(shape.blocks), dim3(kWarp, std::max(shape.warps, 1)),
           shape.shared_bytes, stream, rows, static_cast<int>(width), shape.warps, in, weight, moments,
           out_gradient, add, in_gradient, workspace);
  }
  sum_partials(stream, shape.blocks, workspace, add_parameters, weight_gradient, width, bias_gradient, width);
}

#define DTRUN_NORM(T)                                                                                  \
  template void layer_norm(cudaStream_t, std::size_t, std::size_t, float, const T*, const float*,      \
                           const float*, float*, T*);                                                  \
  template void residual_layer_norm(cudaStream_t, std::size_t, std::size_t, float, const T*, const T*, \
                                    const float*, const float*, T*, float*, T*);                       \
  template void layer_norm_backward(cudaStream_t, std::size_t, std::size_t, const T*, const float*,    \
                                    const float*, const T*, bool, T*, bool, float*, float*, float*);
DTRUN_NORM(float)
DTRUN_NORM(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
