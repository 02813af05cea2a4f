// Whole-vector buffers that are used again step after step, with whatever they held before.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/vector/stream.h"

namespace dtrun::worker {

// Thread-safe. Grows to the number of buffers that were ever out at once.
class BufferPool {
 public:
  // `make` makes one more; any thread calls it.
  explicit BufferPool(std::function<Buffer()> make) : make_(std::move(make)) {}

  // Makes buffers until there are `count` of them. REQUIRES: none is out.
  void reserve(std::size_t count) {
    std::lock_guard lock(mutex_);
    while (free_.size() < count) free_.push_back({.buffer = make_(), .used = {}});
  }
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
    return make_();
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
  const std::function<Buffer()> make_;
  std::mutex mutex_;  // guards free_
  std::vector<Free> free_;
};

}  // namespace dtrun::worker
