// Whole-vector float buffers that are used again step after step, 64-byte aligned, never zeroed.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace dtrun::worker {

struct AlignedFree {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using FloatBuffer = std::unique_ptr<float[], AlignedFree>;

inline FloatBuffer make_float_buffer(std::size_t size) {
  return FloatBuffer(static_cast<float*>(::operator new[](size * sizeof(float), std::align_val_t{64})));
}

// Thread-safe. Grows to the number of buffers that were ever out at once.
class BufferPool {
 public:
  explicit BufferPool(std::size_t size) : size_(size) {}

  FloatBuffer take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return make_float_buffer(size_);
    FloatBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void give(FloatBuffer buffer) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  const std::size_t size_;  // floats
  std::mutex mutex_;        // guards free_
  std::vector<FloatBuffer> free_;
};

}  // namespace dtrun::worker
