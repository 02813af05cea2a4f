// A block of floats in host memory: 64-byte aligned (one vector register, one cache line) and zero at first.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace dtrun::worker {

class Buffer {
 public:
  Buffer() = default;  // no memory
  explicit Buffer(std::size_t floats)
      : floats_(new (std::align_val_t{kAlignment}) float[floats]()), size_(floats) {}
  float* data() const { return floats_.get(); }
  std::size_t size() const { return size_; }
  // False if it has no memory: made without a size, or moved away.
  explicit operator bool() const { return floats_ != nullptr; }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(float* floats) const { ::operator delete[](floats, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float[], Free> floats_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::worker
