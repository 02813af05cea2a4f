#include <algorithm>

#include "tests/bench/bits.h"
#include "worker/device/cuda/kernels/pack.cuh"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 256;

// The end of SplitMix64.
__device__ inline unsigned long long mixed_64(unsigned long long x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ inline unsigned long long of_word(std::size_t at, unsigned seed, unsigned word) {
  const unsigned long long place = (static_cast<unsigned long long>(seed) << 40) + at + 1;
  return mixed_64(place * 0x9e3779b97f4a7c15ull ^ mixed_64(word));
}

__global__ void __launch_bounds__(kThreads)
    add_bits_kernel(std::size_t bytes, unsigned seed, const unsigned* words, unsigned long long* to) {
  wait_for_previous();
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned long long sum = 0;
  for (std::size_t at = first; at < bytes / 4; at += static_cast<std::size_t>(gridDim.x) * kThreads)
    sum += of_word(at, seed, words[at]);
  if (first == 0 && bytes % 4 != 0)
    sum += of_word(bytes / 4, seed, reinterpret_cast<const unsigned short*>(words)[bytes / 2 - 1]);
  atomicAdd(to, sum);  // whole numbers, so the sum is the same in every order
}

}  // namespace

void add_bits(cudaStream_t stream, std::size_t bytes, unsigned seed, const void* data, std::uint64_t* to) {
  launch(add_bits_kernel, std::clamp(blocks_of(bytes / 4, kThreads), 1u, 1024u), kThreads, 0, stream, bytes,
         seed, static_cast<const unsigned*>(data), reinterpret_cast<unsigned long long*>(to));
}

}  // namespace dtrun::worker::cuda
