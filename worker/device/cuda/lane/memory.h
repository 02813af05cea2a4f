// The memory behind a schedule's places, for one lane: the caller's parameters and results, and the lane's
// own memory, which does not move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/lane/microbatch_upload.h"
#include "worker/device/cuda/steps.h"
#include "worker/vector/update.h"

namespace dtrun::worker::cuda {

// T: float or __nv_bfloat16, the elements of values and matrices.
template <typename T>
struct LaneMemory {
  const float* arena = nullptr;
  const void* samples = nullptr;  // as T
  MicrobatchUpload::OnDevice microbatch;
  const float* parameters = nullptr;  // flat
  const void* matrices = nullptr;     // the parameters as T
  float* out = nullptr;               // statistics, then the gradient

  // Null for no place. A step writes only where its schedule says.
  std::byte* bytes(const Place& place) const {
    switch (place.space) {
      case Space::kNone:
        return nullptr;
      case Space::kArena:
        return as_bytes(arena) + place.offset;
      case Space::kSamples:
        return as_bytes(samples) + place.offset;
      case Space::kTokens:
        return as_bytes(microbatch.tokens) + place.offset;
      case Space::kTargets:
        return as_bytes(microbatch.targets) + place.offset;
      case Space::kParameters:
        return as_bytes(parameters) + place.offset;
      case Space::kMatrices:
        return as_bytes(matrices) + place.offset;
      case Space::kGradient:
        return as_bytes(out + kStatisticsFloats) + place.offset;
      case Space::kStatistics:
        return as_bytes(out) + place.offset;
    }
    return nullptr;
  }
  T* values(const Place& place) const { return reinterpret_cast<T*>(bytes(place)); }
  float* floats(const Place& place) const { return reinterpret_cast<float*>(bytes(place)); }

 private:
  static std::byte* as_bytes(const void* memory) {
    return static_cast<std::byte*>(const_cast<void*>(memory));
  }
};

}  // namespace dtrun::worker::cuda
