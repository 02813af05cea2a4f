// Whole-vector buffers that are used again step after step, with whatever they held before.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

// Thread-safe. Grows to the number of buffers that were ever out at once.
class BufferPool {
 public:
  BufferPool(Arithmetic& arithmetic, std::size_t size) : arithmetic_(arithmetic), size_(size) {}

  // For use on `stream`, which waits for those who used the buffer before.
  Buffer take(Stream& stream) {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Free last = std::move(free_.back());
        free_.pop_back();
        stream.after(last.used);
        return std::move(last.buffer);
      }
    }
    return arithmetic_.allocate(Where::kDevice, size_);
  }
  // Nobody uses the buffer any more once `used` is done.
  void give(Buffer buffer, const Event& used) {
    std::lock_guard lock(mutex_);
    free_.push_back({.buffer = std::move(buffer), .used = used});
  }

 private:
  struct Free {
    Buffer buffer;
    Event used;
  };
  Arithmetic& arithmetic_;
  const std::size_t size_;  // floats
  std::mutex mutex_;        // guards free_
  std::vector<Free> free_;
};

}  // namespace dtrun::worker
