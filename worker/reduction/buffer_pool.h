// Whole-vector buffers that are used again step after step, with whatever they held before.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"

namespace dtrun::worker {

// Thread-safe. Grows to the number of buffers that were ever out at once.
class BufferPool {
 public:
  explicit BufferPool(std::size_t size) : size_(size) {}

  Buffer take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Buffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
      }
    }
    return Buffer(size_);
  }
  void give(Buffer buffer) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  const std::size_t size_;  // floats
  std::mutex mutex_;        // guards free_
  std::vector<Buffer> free_;
};

}  // namespace dtrun::worker
