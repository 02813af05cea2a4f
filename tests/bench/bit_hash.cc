#include "tests/bench/bit_hash.h"

#include <cstdio>

#include "tests/bench/bits.h"
#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {

BitHash::BitHash(CudaArithmetic& arithmetic, CudaStream& stream)
    : stream_(stream), sum_(arithmetic.allocate_bytes(sizeof(std::uint64_t), "a hash")) {
  check(cudaMemsetAsync(sum_.data(), 0, sizeof(std::uint64_t), stream_.handle()), "clearing memory");
  stream_.wait();  // a hash that is never taken leaves no work behind
}

void BitHash::add(const void* data, std::size_t bytes) {
  add_bits(stream_.handle(), bytes, ++added_, data, reinterpret_cast<std::uint64_t*>(sum_.data()));
  check_launch("add_bits");
}

std::uint64_t BitHash::take() {
  std::uint64_t sum = 0;
  check(cudaMemcpyAsync(&sum, sum_.data(), sizeof sum, cudaMemcpyDeviceToHost, stream_.handle()), "copying");
  check(cudaMemsetAsync(sum_.data(), 0, sizeof sum, stream_.handle()), "clearing memory");
  stream_.wait();
  added_ = 0;
  return sum;
}

std::string hexadecimal(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace dtrun::worker::cuda
