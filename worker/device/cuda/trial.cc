#include "worker/device/cuda/trial.h"

#include <cuda_bf16.h>

#include <array>
#include <cstdio>

#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {

std::optional<Cut> Trial::memory(std::size_t bytes) {
  if (bytes <= bytes_) return Cut(arena_);
  more_ = {};
  more_ = arithmetic_.try_allocate_bytes(bytes);
  if (!more_) return {};
  return Cut(more_.data());
}

template <typename T>
std::string Trial::difference(const char* what, std::size_t count, const T* own, const T* other,
                              float tolerance, float* apart) const {
  std::array<float, 2> found{};
  check(cudaMemsetAsync(apart, 0, sizeof found, stream_.handle()), "clearing memory");
  compare(stream_.handle(), count, own, other, apart);
  check_launch("compare");
  check(cudaMemcpyAsync(found.data(), apart, sizeof found, cudaMemcpyDeviceToHost, stream_.handle()),
        "copying");
  stream_.wait();
  if (found[0] <= tolerance * found[1]) return "";
  char words[160];
  std::snprintf(words, sizeof words, "%s: %g apart, where the largest value is %g", what,
                static_cast<double>(found[0]), static_cast<double>(found[1]));
  return words;
}

template std::string Trial::difference(const char*, std::size_t, const float*, const float*, float,
                                       float*) const;
template std::string Trial::difference(const char*, std::size_t, const __nv_bfloat16*, const __nv_bfloat16*,
                                       float, float*) const;

}  // namespace dtrun::worker::cuda
