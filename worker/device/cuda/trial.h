// Tries out a library's results before a lane relies on them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "worker/base/buffer.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/stream.h"

namespace dtrun::worker::cuda {

// Memory that is cut into vectors.
class Cut {
 public:
  explicit Cut(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  static constexpr std::size_t kAlignment = 256;  // of vectors, in bytes; each may take up to so many more

  // Memory for the next `count` elements. REQUIRES: there is room for them.
  template <typename T>
  T* next(std::size_t count) {
    std::byte* const from = memory_;
    memory_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(from);
  }

 private:
  std::byte* memory_;
};

class Trial {
 public:
  // `arena`: `bytes` of the device's memory, whose content is not needed.
  Trial(CudaArithmetic& arithmetic, CudaStream& stream, float* arena, std::size_t bytes)
      : arithmetic_(arithmetic), stream_(stream), arena_(arena), bytes_(bytes) {}

  // Memory of at least `bytes`, valid until the next call; none if there is no room.
  std::optional<Cut> memory(std::size_t bytes);
  CudaStream& stream() const { return stream_; }

  // Compares two results on the stream, and waits. "", or a text with their difference if that is more than
  // `tolerance` of the largest value. `apart`: device memory for two floats.
  template <typename T>
  std::string difference(const char* what, std::size_t count, const T* own, const T* other, float tolerance,
                         float* apart) const;

 private:
  CudaArithmetic& arithmetic_;
  CudaStream& stream_;
  float* const arena_;
  const std::size_t bytes_;
  Buffer more_;
};

}  // namespace dtrun::worker::cuda
