// A block of floats for activations: 64-byte aligned (one vector register, one cache line) and zero at first.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace dtrun::worker {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t floats)
      : floats_(new (std::align_val_t{kAlignment}) float[floats]()), size_(floats) {}
  float* data() const { return floats_.get(); }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(float* floats) const { ::operator delete[](floats, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float[], Free> floats_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::worker
