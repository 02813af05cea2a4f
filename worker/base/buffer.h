// A block of floats: in host memory, 64-byte aligned (one vector register, one cache line) and zero at first;
// or memory of another allocator, such as a device's, which the host may not be able to read. Large ones lie
// in huge pages where the system gives them on request: matrices whose rows are pages apart need fewer
// entries of the processor's page table cache.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
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
      : Buffer(allocate(floats), floats, [alignment = alignment_of(floats)](float* memory) {
          ::operator delete[](memory, alignment);
        }) {}
  Buffer(float* memory, std::size_t floats, Free free) : floats_(memory, std::move(free)), size_(floats) {}
  float* data() const { return floats_.get(); }
  std::size_t size() const { return size_; }
  // False for a buffer without memory: default-constructed, or moved from.
  explicit operator bool() const { return floats_ != nullptr; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static std::align_val_t alignment_of(std::size_t floats) {
    return std::align_val_t{floats * sizeof(float) >= 2 * kHugePage ? kHugePage : 64};
  }
  static float* allocate(std::size_t floats) {
    const std::size_t bytes = floats * sizeof(float);
    void* const memory = ::operator new[](bytes, alignment_of(floats));
    if (bytes >= 2 * kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 0, bytes);
    return static_cast<float*>(memory);
  }

  std::unique_ptr<float[], Free> floats_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::worker
