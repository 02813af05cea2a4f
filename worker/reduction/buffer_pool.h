// Whole-vector buffers that are used again in every step, with undefined content.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/vector/stream.h"

namespace dtrun::worker {

// Thread-safe. Grows to the largest number of buffers that were in use at once.
class BufferPool {
 public:
  // `make` makes one buffer; any thread calls it.
  explicit BufferPool(std::function<Buffer()> make) : make_(std::move(make)) {}

  // Makes buffers until there are `count` of them. REQUIRES: no buffer is in use.
  void reserve(std::size_t count) {
    std::lock_guard lock(mutex_);
    while (free_.size() < count) free_.push_back({.buffer = make_(), .used = {}});
  }
  // A buffer for use on `stream`, which waits for the buffer's earlier users.
  Buffer take(Stream& stream) {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        FreeBuffer last = std::move(free_.back());
        free_.pop_back();
        stream.after(last.used);
        return std::move(last.buffer);
      }
    }
    return make_();
  }
  // Returns a buffer whose last use ends with `used`.
  void give(Buffer buffer, const Event& used) {
    std::lock_guard lock(mutex_);
    free_.push_back({.buffer = std::move(buffer), .used = used});
  }

 private:
  struct FreeBuffer {
    Buffer buffer;
    Event used;
  };
  const std::function<Buffer()> make_;
  std::mutex mutex_;  // guards free_
  std::vector<FreeBuffer> free_;
};

}  // namespace dtrun::worker
