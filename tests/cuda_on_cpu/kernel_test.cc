// Kernels as such: threads, blocks, shared memory, warp operations.
#include <cuda_on_cpu.h>
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

namespace {

using cuda_on_cpu::Order;

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

TEST_CASE("a block reverses its part through shared memory, in every order of threads and blocks") {
  const cuda_on_cpu::Settings before = cuda_on_cpu::settings;
  std::vector<int> from(3 * 64), to(3 * 64);
  std::iota(from.begin(), from.end(), 0);
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    cuda_on_cpu::settings.threads = cuda_on_cpu::settings.blocks = order;
    std::fill(to.begin(), to.end(), -1);
    launch(reverse, 3, 64, 64 * sizeof(int), nullptr, to.data(), from.data());
    CHECK(to[0] == -1);  // nothing has run yet
    cuda_on_cpu::synchronize();
    CHECK(to[0] == 63);
    CHECK(to[64] == 127);
    CHECK(to[191] == 128);
  }
  cuda_on_cpu::settings = before;
}

TEST_CASE("warps sum by shuffles") {
  std::vector<int> in(128, 1), out(4);
  in[5] = 100;
  launch(warp_sums, 1, 128, 0, nullptr, out.data(), in.data());
  cuda_on_cpu::synchronize();
  CHECK(out == std::vector<int>{131, 32, 32, 32});
}

}  // namespace
