// See worker/device/cuda/kernels/elementwise.h for what holds for all kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dtrun::worker::cuda {

// *to += a number that follows from `seed` and each bit with its place, whatever the order of additions.
// data: on 4 bytes; bytes: an even number.
void add_bits(cudaStream_t stream, std::size_t bytes, unsigned seed, const void* data, std::uint64_t* to);

}  // namespace dtrun::worker::cuda
