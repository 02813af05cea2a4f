// Kernels as such: threads, blocks, shared memory, warp operations.
#include <cmath>
#include <numeric>

#include "tests/cuda_on_cpu/device_test.h"

namespace {

using namespace cuda_on_cpu;

constexpr Order kOrders[] = {Order::kForward, Order::kReverse, Order::kRandom};

__global__ void reverse(int* to, const int* from) {
  DYNAMIC_SHARED(int, all);
  const unsigned i = threadIdx.x;
  all[i] = from[blockIdx.x * blockDim.x + i];
  __syncthreads();
  to[blockIdx.x * blockDim.x + i] = all[blockDim.x - 1 - i];
}

__global__ void warp_sums(int* out, const int* in) {
  SHARED_ARRAY(int, sums, 32);
  int sum = in[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes >>= 1) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < blockDim.x / 32) out[threadIdx.x] = sums[threadIdx.x];
}

__global__ void where_am_i(uint3* thread, uint3* block, unsigned* dims) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  __syncthreads();  // and still knows who it is
  thread[b * threads + t] = threadIdx;
  block[b * threads + t] = blockIdx;
  if (t == 0 && b == 0) dims[0] = warpSize;
}

// The value that each lane gets, one row of 32 for each operation.
__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* row = out + lane;
  const auto put = [&](int value) {
    *row = value;
    row += 32;
  };
  put(__shfl_sync(~0u, lane, 5));
  put(__shfl_sync(~0u, lane, 5, 8));
  put(__shfl_xor_sync(~0u, lane, 3));
  put(__shfl_xor_sync(~0u, lane, 8, 8));
  put(__shfl_down_sync(~0u, lane, 3));
  put(__shfl_down_sync(~0u, lane, 3, 16));
  put(__shfl_up_sync(~0u, lane, 2));
  put(__shfl_up_sync(~0u, lane, 2, 4));
  put(static_cast<int>(__ballot_sync(~0u, lane % 3 == 0)));
  put(__any_sync(~0u, lane == 7));
  put(__all_sync(~0u, lane == 7));
}

__global__ void votes(int* out) {
  const int count = __syncthreads_count(threadIdx.x < 5);
  const int any = __syncthreads_or(threadIdx.x == 1), all = __syncthreads_and(threadIdx.x == 1);
  const int again = __syncthreads_count(threadIdx.x < 7);
  if (threadIdx.x == 0) {
    out[0] = count;
    out[1] = any;
    out[2] = all;
    out[3] = again;
  }
}

__global__ void reads_unset(float* out, bool dynamic) {
  DYNAMIC_SHARED(float, one);
  SHARED_ARRAY(float, other, 32);
  if (threadIdx.x == 3) one[3] = other[3] = 1;
  __syncthreads();
  out[threadIdx.x] = dynamic ? one[threadIdx.x] : other[threadIdx.x];
}

// Only the first lanes; the others' values are unused.
__global__ void part_of_warp(float* out) {
  if (threadIdx.x < 4) out[threadIdx.x] = __shfl_down_sync(0xfu, static_cast<float>(threadIdx.x), 2);
}

__global__ void add_atomically(int* sum, unsigned* largest) {
  atomicAdd(sum, static_cast<int>(threadIdx.x));
  atomicMax(largest, blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void vectors(float4* out, const float4* in, __nv_bfloat16* half) {
  const float4 v = __ldcs(in + threadIdx.x);
  __stcs(out + threadIdx.x, make_float4(v.w, v.z, v.y, v.x));
  half[threadIdx.x] = __float2bfloat16_rn(__fmul_rn(v.x, 1.0f));
}

template <typename T>
concept AddsAtomically = requires(T* p, T value) {
  atomicAdd(p, value);
};
static_assert(AddsAtomically<int> && AddsAtomically<unsigned>);
static_assert(!AddsAtomically<float> && !AddsAtomically<double> && !AddsAtomically<__nv_bfloat16>);

TEST_CASE("a block reverses its part through shared memory, in every order of threads and blocks") {
  const Restored restored;
  std::vector<int> from(3 * 64);
  std::iota(from.begin(), from.end(), 0);
  const OnDevice<int> in(from), out(from.size());
  for (const Order order : kOrders) {
    settings.threads = settings.blocks = order;
    out.put(std::vector<int>(from.size(), -1));
    launch(reverse, 3, 64, 64 * sizeof(int), nullptr, out.data(), in.data());
    const std::vector<int> got = out.get();
    CHECK(got[0] == 63);
    CHECK(got[64] == 127);
    CHECK(got[191] == 128);
  }
}

TEST_CASE("kernels may use memory of the host that a test has at hand") {
  const Restored restored;
  std::vector<int> from(64), to(64, -1);
  std::iota(from.begin(), from.end(), 0);
  launch(reverse, 1, 64, 64 * sizeof(int), nullptr, to.data(), from.data());
  CHECK(to[0] == -1);  // nothing has run yet
  cuda_on_cpu::synchronize();
  CHECK(to[0] == 63);
}

TEST_CASE("warps sum by shuffles") {
  const Restored restored;
  std::vector<int> values(128, 1);
  values[5] = 100;
  const OnDevice<int> in(values), out(4);
  for (const Order order : kOrders) {
    settings.threads = order;
    launch(warp_sums, 1, 128, 0, nullptr, out.data(), in.data());
    CHECK(out.get() == std::vector<int>{131, 32, 32, 32});
  }
}

TEST_CASE("every thread of a grid of three dimensions knows where it is") {
  const Restored restored;
  const dim3 grid(2, 3, 2), block(3, 4, 5);
  const OnDevice<uint3> thread(12 * 60), place(12 * 60);
  const OnDevice<unsigned> dims(1);
  for (const Order order : kOrders) {
    settings.threads = settings.blocks = order;
    launch(where_am_i, grid, block, 0, nullptr, thread.data(), place.data(), dims.data());
    const std::vector<uint3> threads = thread.get(), places = place.get();
    CHECK(dims.get()[0] == 32);
    bool right = true;
    for (unsigned i = 0; i < threads.size(); ++i) {
      const unsigned t = i % 60, b = i / 60;
      right = right && threads[i].x == t % 3 && threads[i].y == t / 3 % 4 && threads[i].z == t / 12;
      right = right && places[i].x == b % 2 && places[i].y == b / 2 % 3 && places[i].z == b / 6;
    }
    CHECK(right);
  }
}

TEST_CASE("shuffles and votes are CUDA's") {
  const Restored restored;
  const OnDevice<int> out(11 * 32);
  for (const Order order : kOrders) {
    settings.threads = order;
    launch(shuffles, 1, 32, 0, nullptr, out.data());
    const std::vector<int> got = out.get();
    bool right = true;
    for (int lane = 0; lane < 32; ++lane) {
      const int expected[] = {5,
                              lane / 8 * 8 + 5,
                              lane ^ 3,
                              lane & 8 ? lane ^ 8 : lane,  // from earlier groups only
                              lane + 3 < 32 ? lane + 3 : lane,
                              lane % 16 + 3 < 16 ? lane + 3 : lane,
                              lane >= 2 ? lane - 2 : lane,
                              lane % 4 >= 2 ? lane - 2 : lane,
                              0x49249249,
                              1,
                              0};
      for (int row = 0; row < 11; ++row) {
        CAPTURE(lane);
        CAPTURE(row);
        const int value = got[static_cast<std::size_t>(row * 32 + lane)];
        if (value != expected[row]) CHECK(value == expected[row]);
        right = right && value == expected[row];
      }
    }
    CHECK(right);
  }
}

TEST_CASE("a barrier counts votes") {
  const Restored restored;
  const OnDevice<int> out(4);
  launch(votes, 1, 100, 0, nullptr, out.data());
  CHECK(out.get() == std::vector<int>{5, 1, 0, 7});
}

TEST_CASE("shared memory is NaN until it is written, in each block") {
  const Restored restored;
  const OnDevice<float> out(32);
  for (const bool dynamic : {true, false}) {
    for (int again = 0; again < 2; ++again) {
      launch(reads_unset, 2, 32, 32 * sizeof(float), nullptr, out.data(), dynamic);
      const std::vector<float> got = out.get();
      CHECK(got[3] == 1);
      CHECK(std::isnan(got[2]));
      CHECK(std::isnan(got[31]));
    }
  }
}

TEST_CASE("part of a warp may shuffle alone; what it gets from outside is NaN") {
  const Restored restored;
  const OnDevice<float> out(4);
  launch(part_of_warp, 1, 32, 0, nullptr, out.data());
  const std::vector<float> got = out.get();
  CHECK(got[0] == 2);
  CHECK(got[1] == 3);
  CHECK(std::isnan(got[2]));
}

TEST_CASE("integers are added atomically") {
  const Restored restored;
  const OnDevice<int> sum(std::vector<int>(1, 0));
  const OnDevice<unsigned> largest(std::vector<unsigned>(1, 0));
  launch(add_atomically, 4, 100, 0, nullptr, sum.data(), largest.data());
  CHECK(sum.get()[0] == 4 * 4950);
  CHECK(largest.get()[0] == 399);
}

TEST_CASE("vectors of four and bf16 are CUDA's own") {
  const Restored restored;
  const OnDevice<float4> in(std::vector<float4>(8, make_float4(1.005f, 2, 3, 4))), out(8);
  const OnDevice<__nv_bfloat16> half(8);
  launch(vectors, 1, 8, 0, nullptr, out.data(), in.data(), half.data());
  CHECK(out.get()[7].x == 4);
  CHECK(out.get()[7].w == 1.005f);
  CHECK(__bfloat162float(half.get()[7]) == 1.0078125f);
}

TEST_CASE("what a device function says of numbers") {
  CHECK(__umulhi(0x80000000u, 6u) == 3);
  CHECK(__mulhi(-1, 5) == -1);
  CHECK(__popc(0xf0u) == 4);
  CHECK(__clz(1) == 31);
  CHECK(__clz(0) == 32);
  CHECK(__ffs(0) == 0);
  CHECK(__ffs(8) == 4);
  CHECK(__float_as_uint(1.0f) == 0x3f800000u);
  CHECK(__uint_as_float(0x40000000u) == 2.0f);
  CHECK(__float2int_rn(2.5f) == 2);
  CHECK(__float2int_rz(-2.9f) == -2);
  CHECK(__saturatef(-1.0f) == 0.0f);
  CHECK(__saturatef(NAN) == 0.0f);
  CHECK(rsqrtf(4.0f) == 0.5f);
  CHECK(__fmaf_rn(3.0f, 4.0f, 5.0f) == 17.0f);
  CHECK(max(3u, 4u) == 4);
  CHECK(min(-3, 4) == -3);
}

}  // namespace
