// Blocks of 64 x 64 scores, computed as matmuls of two tiles in shared memory: 64 rows of one head, kChunk
// columns of it at a time, as fp32. A thread has 4 x 4 numbers of each matmul: rows 4 * y .. 4 * y + 3, and
// of scores columns x, x + 16, …, of outputs columns 4 * x .. 4 * x + 3. Nothing is added up across threads,
// so the order of every sum is the tiles' order.
#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/attention.h"
#include "worker/device/cuda/kernels/pack.cuh"

namespace dtrun::worker::cuda {
namespace {

constexpr int kTile = 64, kChunk = 64;
constexpr int kPitch =
    kChunk + 4;  // floats from row to row of a tile: packs of neighbouring rows in different banks
constexpr int kAcross = 16, kThreads = kAcross * kAcross;

using Float4 = Pack<float, 4>;
using Block4 = float[4][4];

struct HeadPlace {
  int x = threadIdx.x % kAcross, y = threadIdx.x / kAcross;
};

// The place of one head of one sample, for the block's tile of rows.
template <typename T>
struct Head {
  int tokens, size, width;
  float scale;
  std::size_t row;        // of the sample's first token
  std::size_t statistic;  // of the sample's and head's first token
  int column;             // first column of the head
  __device__ Head(int tokens, int heads, int size)
      : tokens(tokens),
        size(size),
        width(heads * size),
        scale(1.0f / sqrtf(static_cast<float>(size))),
        row(static_cast<std::size_t>(blockIdx.z) * tokens),
        statistic((static_cast<std::size_t>(blockIdx.z) * heads + blockIdx.y) * tokens),
        column(static_cast<int>(blockIdx.y) * size) {}
  __device__ int rows(int tile) const {
    const int left = tokens - tile * kTile;
    return left < kTile ? left : kTile;
  }
  __device__ int columns(int chunk) const {
    const int left = size - chunk * kChunk;
    return left < kChunk ? left : kChunk;
  }
  // The offset in rows of [query | key | value], of part 0, 1 or 2; out(): in rows of the output.
  __device__ std::size_t packed(int tile, int chunk, int part) const {
    return (row + tile * kTile) * 3 * width + part * width + column + chunk * kChunk;
  }
  __device__ std::size_t out(int tile, int chunk) const {
    return (row + tile * kTile) * width + column + chunk * kChunk;
  }
};

// A tile from memory; zeros fill it up.
template <typename T>
__device__ void load_tile(const T* from, int stride, int rows, int columns, float* to) {
  constexpr int kRows = kThreads / kWarp;  // at a time, one for each warp
  const int first = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const bool left = lane < columns, right = lane + kWarp < columns;
  from += static_cast<std::size_t>(first) * stride + lane;
  to += first * kPitch + lane;
#pragma unroll 2
  for (int r = first; r < kTile;
       r += kRows, from += kRows * static_cast<std::size_t>(stride), to += kRows * kPitch) {
    to[0] = r < rows && left ? to_float(from[0]) : 0.0f;
    to[kWarp] = r < rows && right ? to_float(from[kWarp]) : 0.0f;
  }
}
static_assert(kChunk == 2 * kWarp);

// scores += left right^T, over `columns` columns.
__device__ inline void multiply_transposed(const float* left, const float* right, int columns,
                                           Block4& scores) {
  const HeadPlace at;
#pragma unroll 1
  for (int c = 0; c < columns; c += 4) {
    Float4 a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = load<4>(left + (4 * at.y + i) * kPitch + c);
#pragma unroll
    for (int j = 0; j < 4; ++j) b[j] = load<4>(right + (at.x + kAcross * j) * kPitch + c);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i][j] += a[i].v[e] * b[j].v[e];
  }
}

// out += left right, over `rows` rows of `right`.
__device__ inline void multiply(const float* left, const float* right, int rows, Block4& out) {
  const HeadPlace at;
#pragma unroll 1
  for (int r = 0; r < rows; r += 4) {
    Float4 a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = load<4>(left + (4 * at.y + i) * kPitch + r);
#pragma unroll
    for (int e = 0; e < 4; ++e) b[e] = load<4>(right + (r + e) * kPitch + 4 * at.x);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[i][j] += a[i].v[e] * b[e].v[j];
  }
}

__device__ inline void store_scores(const Block4& scores, float* tile) {
  const HeadPlace at;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[(4 * at.y + i) * kPitch + at.x + kAcross * j] = scores[i][j];
}

// Stores the thread's numbers of one chunk, as far as the rows and columns exist.
template <typename T>
__device__ void store_out(const Block4& out, int rows, int columns, int stride, T* to) {
  const HeadPlace at;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (4 * at.y + i < rows && 4 * at.x + j < columns)
        to[static_cast<std::size_t>(4 * at.y + i) * stride + 4 * at.x + j] = from_float<T>(out[i][j]);
}

// A block computes one query tile, the last tiles first, since they have most work. kChunks: of a head.
template <int kChunks, typename T>
__global__ void __launch_bounds__(kThreads, kChunks == 1 ? 2 : 1)
    attention_kernel(int tokens, int heads, int size, const T* qkv, T* out, float* statistics) {
  wait_for_previous();
  SHARED_ARRAY(Float4, left_tile, kTile * kPitch / 4);
  SHARED_ARRAY(Float4, right_tile, kTile * kPitch / 4);
  SHARED_ARRAY(float, factors,
               kTile);  // by which a new largest score scales the sums down; at last 1 / sum
  float* const left = left_tile->v;
  float* const right = right_tile->v;
  const HeadPlace at;
  const Head<T> head(tokens, heads, size);
  const int tile = gridDim.x - 1 - blockIdx.x, queries = head.rows(tile), stride = 3 * head.width;
  float largest = -INFINITY, sum = 0;  // of query threadIdx.x
  Block4 result[kChunks] = {};
  for (int other = 0; other <= tile; ++other) {
    const int keys = head.rows(other);
    Block4 scores = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      load_tile(qkv + head.packed(tile, c, 0), stride, queries, head.columns(c), left);
      load_tile(qkv + head.packed(other, c, 1), stride, keys, head.columns(c), right);
      __syncthreads();
      if (4 * at.y < queries) multiply_transposed(left, right, head.columns(c), scores);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = at.x + kAcross * j;
        const bool seen = key < keys && other * kTile + key <= tile * kTile + 4 * at.y + i;
        scores[i][j] = seen ? scores[i][j] * head.scale : -INFINITY;
      }
    store_scores(scores, left);
    load_tile(qkv + head.packed(other, 0, 2), stride, keys, head.columns(0), right);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < queries) {
      float* const row = left + threadIdx.x * kPitch;
      const float before = largest;
      for (int k = 0; k < keys; k += 4) {
        const Float4 some = load<4>(row + k);
        for (int e = 0; e < 4; ++e) largest = larger(largest, some.v[e]);
      }
      const float factor = exponential<T>(before - largest);
      sum *= factor, factors[threadIdx.x] = factor;
      for (int k = 0; k < keys; k += 4) {
        Float4 some = load<4>(row + k);
        for (int e = 0; e < 4; ++e) sum += some.v[e] = exponential<T>(some.v[e] - largest);
        store(row + k, some);
      }
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c > 0) {
        __syncthreads();
        load_tile(qkv + head.packed(other, c, 2), stride, keys, head.columns(c), right);
        __syncthreads();
      }
      if (4 * at.y >= queries || 4 * at.x >= head.columns(c)) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) result[c][i][j] *= 4 * at.y + i < queries ? factors[4 * at.y + i] : 0.0f;
      multiply(left, right, keys, result[c]);
    }
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < queries) {
    factors[threadIdx.x] = 1.0f / sum;
    statistics[head.statistic + tile * kTile + threadIdx.x] = largest + logf(sum);
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) result[c][i][j] *= 4 * at.y + i < queries ? factors[4 * at.y + i] : 0.0f;
    store_out(result[c], queries, head.columns(c), head.width, out + head.out(tile, c));
  }
}

// The gradient of queries, and for the other kernel deltas: each query's sum of out * out_gradient over a
// head.
template <int kChunks, typename T>
__global__ void __launch_bounds__(kThreads, kChunks == 1 ? 2 : 1)
    query_gradient_kernel(int tokens, int heads, int size, const T* qkv, const T* out, const T* out_gradient,
                          const float* statistics, float* deltas, T* qkv_gradient) {
  wait_for_previous();
  SHARED_ARRAY(Float4, left_tile, kTile * kPitch / 4);
  SHARED_ARRAY(Float4, right_tile, kTile * kPitch / 4);
  SHARED_ARRAY(float, delta, kTile);
  SHARED_ARRAY(float, statistic, kTile);
  float* const left = left_tile->v;
  float* const right = right_tile->v;
  const HeadPlace at;
  const Head<T> head(tokens, heads, size);
  const int tile = gridDim.x - 1 - blockIdx.x, queries = head.rows(tile), stride = 3 * head.width;
  float own_delta = 0;
  for (int c = 0; c < kChunks; ++c) {
    __syncthreads();
    load_tile(out + head.out(tile, c), head.width, queries, head.columns(c), left);
    load_tile(out_gradient + head.out(tile, c), head.width, queries, head.columns(c), right);
    __syncthreads();
    if (threadIdx.x >= kTile) continue;
    for (int k = 0; k < head.columns(c); k += 4) {
      const Float4 a = load<4>(left + threadIdx.x * kPitch + k),
                   b = load<4>(right + threadIdx.x * kPitch + k);
      for (int e = 0; e < 4; ++e) own_delta += a.v[e] * b.v[e];
    }
  }
  if (threadIdx.x < kTile) {
    const std::size_t place = head.statistic + tile * kTile + threadIdx.x;
    const bool real = static_cast<int>(threadIdx.x) < queries;
    delta[threadIdx.x] = own_delta;
    statistic[threadIdx.x] = real ? statistics[place] : 0.0f;
    if (real) deltas[place] = own_delta;
  }
  Block4 result[kChunks] = {};
  for (int other = 0; other <= tile; ++other) {
    const int keys = head.rows(other);
    Block4 scores = {}, gradients = {};
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      load_tile(out_gradient + head.out(tile, c), head.width, queries, head.columns(c), left);
      load_tile(qkv + head.packed(other, c, 2), stride, keys, head.columns(c), right);
      __syncthreads();
      if (4 * at.y < queries) multiply_transposed(left, right, head.columns(c), gradients);
    }
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      load_tile(qkv + head.packed(tile, c, 0), stride, queries, head.columns(c), left);
      load_tile(qkv + head.packed(other, c, 1), stride, keys, head.columns(c), right);
      __syncthreads();
      if (4 * at.y < queries) multiply_transposed(left, right, head.columns(c), scores);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int query = 4 * at.y + i, key = at.x + kAcross * j;
        const bool seen = query < queries && key < keys && other * kTile + key <= tile * kTile + query;
        const float weight = exponential<T>(scores[i][j] * head.scale - statistic[query]);
        gradients[i][j] = seen ? weight * (gradients[i][j] - delta[query]) * head.scale : 0.0f;
      }
    store_scores(gradients, left);
    __syncthreads();
    // The keys' last chunk is still in shared memory, so this loop begins with it.
#pragma unroll
    for (int c = kChunks - 1; c >= 0; --c) {
      if (c < kChunks - 1) {
        __syncthreads();
        load_tile(qkv + head.packed(other, c, 1), stride, keys, head.columns(c), right);
        __syncthreads();
      }
      if (4 * at.y < queries && 4 * at.x < head.columns(c)) multiply(left, right, keys, result[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    store_out(result[c], queries, head.columns(c), stride, qkv_gradient + head.packed(tile, c, 0));
}

// The gradients of keys and values: scores are transposed here, rows are keys. Key tile blockIdx.x.
template <int kChunks, typename T>
__global__ void __launch_bounds__(kThreads, kChunks == 1 ? 2 : 1)
    key_value_gradient_kernel(int tokens, int heads, int size, const T* qkv, const T* out_gradient,
                              const float* statistics, const float* deltas, T* qkv_gradient) {
  wait_for_previous();
  SHARED_ARRAY(Float4, left_tile, kTile * kPitch / 4);
  SHARED_ARRAY(Float4, right_tile, kTile * kPitch / 4);
  SHARED_ARRAY(float, delta, kTile);
  SHARED_ARRAY(float, statistic, kTile);
  float* const left = left_tile->v;
  float* const right = right_tile->v;
  const HeadPlace at;
  const Head<T> head(tokens, heads, size);
  const int tile = blockIdx.x, keys = head.rows(tile), stride = 3 * head.width;
  const int tiles = gridDim.x;
  Block4 key_result[kChunks] = {}, value_result[kChunks] = {};
  for (int other = tile; other < tiles; ++other) {
    const int queries = head.rows(other);
    Block4 scores = {}, gradients = {};
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      load_tile(qkv + head.packed(tile, c, 1), stride, keys, head.columns(c), left);
      load_tile(qkv + head.packed(other, c, 0), stride, queries, head.columns(c), right);
      if (c == 0 && threadIdx.x < kTile) {
        const std::size_t place = head.statistic + other * kTile + threadIdx.x;
        const bool real = static_cast<int>(threadIdx.x) < queries;
        delta[threadIdx.x] = real ? deltas[place] : 0.0f;
        statistic[threadIdx.x] = real ? statistics[place] : 0.0f;
      }
      __syncthreads();
      if (4 * at.y < keys) multiply_transposed(left, right, head.columns(c), scores);
    }
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      load_tile(qkv + head.packed(tile, c, 2), stride, keys, head.columns(c), left);
      load_tile(out_gradient + head.out(other, c), head.width, queries, head.columns(c), right);
      __syncthreads();
      if (4 * at.y < keys) multiply_transposed(left, right, head.columns(c), gradients);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = 4 * at.y + i, query = at.x + kAcross * j;
        const bool seen = query < queries && key < keys && tile * kTile + key <= other * kTile + query;
        scores[i][j] = seen ? exponential<T>(scores[i][j] * head.scale - statistic[query]) : 0.0f;
        gradients[i][j] = seen ? scores[i][j] * (gradients[i][j] - delta[query]) * head.scale : 0.0f;
      }
    store_scores(scores, left);
    __syncthreads();
    // The last chunk of the output's gradient is still in shared memory, so this loop begins with it.
#pragma unroll
    for (int c = kChunks - 1; c >= 0; --c) {
      if (c < kChunks - 1) {
        __syncthreads();
        load_tile(out_gradient + head.out(other, c), head.width, queries, head.columns(c), right);
        __syncthreads();
      }
      if (4 * at.y < keys && 4 * at.x < head.columns(c)) multiply(left, right, queries, value_result[c]);
    }
    __syncthreads();
    store_scores(gradients, left);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c > 0) __syncthreads();
      load_tile(qkv + head.packed(other, c, 0), stride, queries, head.columns(c), right);
      __syncthreads();
      if (4 * at.y < keys && 4 * at.x < head.columns(c)) multiply(left, right, queries, key_result[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    store_out(key_result[c], keys, head.columns(c), stride, qkv_gradient + head.packed(tile, c, 1));
    store_out(value_result[c], keys, head.columns(c), stride, qkv_gradient + head.packed(tile, c, 2));
  }
}

// Calls f with the number of a head's chunks, as a constant.
template <typename F>
void by_chunks(int size, const F& f) {
  if (size <= kChunk) return f(std::integral_constant<int, 1>{});
  if (size <= 2 * kChunk) return f(std::integral_constant<int, 2>{});
  f(std::integral_constant<int, kLargestHead / kChunk>{});
}

dim3 grid_of(const AttentionShape& shape) {
  return {blocks_of(shape.tokens, kTile), static_cast<unsigned>(shape.heads),
          static_cast<unsigned>(shape.samples)};
}

}  // namespace

template <typename T>
void attention(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* out, float* statistics) {
  if (attention_statistics(shape) == 0) return;
  by_chunks(shape.head_size, [&](auto chunks) {
    launch(attention_kernel<chunks, T>, grid_of(shape), kThreads, 0, stream, shape.tokens, shape.heads,
           shape.head_size, qkv, out, statistics);
  });
}

template <typename T>
void attention_backward(cudaStream_t stream, const AttentionShape& shape, const T* qkv, const T* out,
                        const T* out_gradient, const float* statistics, T* qkv_gradient, float* workspace) {
  if (attention_statistics(shape) == 0) return;
  by_chunks(shape.head_size, [&](auto chunks) {
    launch(query_gradient_kernel<chunks, T>, grid_of(shape), kThreads, 0, stream, shape.tokens, shape.heads,
           shape.head_size, qkv, out, out_gradient, statistics, workspace, qkv_gradient);
    launch(key_value_gradient_kernel<chunks, T>, grid_of(shape), kThreads, 0, stream, shape.tokens,
           shape.heads, shape.head_size, qkv, out_gradient, statistics, workspace, qkv_gradient);
  });
}

#define DTRUN_ATTENTION(T)                                                                            \
  template void attention(cudaStream_t, const AttentionShape&, const T*, T*, float*);                 \
  template void attention_backward(cudaStream_t, const AttentionShape&, const T*, const T*, const T*, \
                                   const float*, T*, float*);
DTRUN_ATTENTION(float)
DTRUN_ATTENTION(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
