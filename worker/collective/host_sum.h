// The vector of a step's sum in memory that the host's network can read and write: the vector itself if
// device memory is the host's, else a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker/core/vector_range.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

// The size of the vector that these buckets tile.
inline std::size_t size_of(const std::vector<VectorRange>& buckets) {
  std::size_t size = 0;
  for (const VectorRange& bucket : buckets) size = std::max(size, bucket.end);
  return size;
}

class HostSum {
 public:
  HostSum(Arithmetic& arithmetic, std::size_t size)
      : arithmetic_(arithmetic), size_(size), stream_(arithmetic.make_stream()) {
    if (!arithmetic.device_is_host()) copy_ = arithmetic.allocate(Where::kHost, size);
  }

  void begin(float* device) { device_ = device; }
  float* device() const { return device_; }
  std::span<float> host() const { return {copy_ ? copy_.data() : device_, size_}; }

  // Enqueues on `stream`.
  void to_host(const VectorRange& range, Stream& stream) {
    if (copy_) arithmetic_.copy(stream, copy_.data() + range.begin, device_ + range.begin, range.size());
  }
  // Copies the whole vector. Blocks.
  void to_device() {
    if (copy_) arithmetic_.copy(*stream_, device_, copy_.data(), size_);
    stream_->wait();
  }

 private:
  Arithmetic& arithmetic_;
  const std::size_t size_;
  const std::unique_ptr<Stream> stream_;
  Buffer copy_;              // empty where device memory is the host's
  float* device_ = nullptr;  // the vector of this step
};

}  // namespace dtrun::worker
