// A block of floats: in host memory, 64-byte aligned (one vector register, one cache line) and zero at first;
// or in memory that somebody else allocated, such as a device's, which the host may not be able to read.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <utility>

namespace dtrun::worker {

class Buffer {
 public:
  using Free = std::function<void(float*)>;

  Buffer() = default;  // no memory
  explicit Buffer(std::size_t floats)
      : Buffer(new (std::align_val_t{kAlignment}) float[floats](), floats,
               [](float* memory) { ::operator delete[](memory, std::align_val_t{kAlignment}); }) {}
  Buffer(float* memory, std::size_t floats, Free free) : floats_(memory, std::move(free)), size_(floats) {}
  float* data() const { return floats_.get(); }
  std::size_t size() const { return size_; }
  // False if it has no memory: made without a size, or moved away.
  explicit operator bool() const { return floats_ != nullptr; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::unique_ptr<float[], Free> floats_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::worker
