// A number that stands for the bits of device memory, so that two results can be told apart without keeping
// both: in one run, between two runs, and between two GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/base/buffer.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

// A hash of several vectors, one after the other.
class BitHash {
 public:
  BitHash(CudaArithmetic& arithmetic, CudaStream& stream);

  void add(const void* data, std::size_t bytes);
  // The hash of the vectors added since the last call. Waits.
  std::uint64_t take();

 private:
  CudaStream& stream_;
  const Buffer sum_;
  unsigned added_ = 0;
};

std::string hexadecimal(std::uint64_t hash);

}  // namespace dtrun::worker::cuda
