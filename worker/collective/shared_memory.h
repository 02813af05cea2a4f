// Memory that another process of this host may read while this one works on it: a file without a name
// (memfd_create(2)), which the other opens through /proc. Pages live as long as any process has them mapped,
// so a reader can finish after the writer was killed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "worker/base/buffer.h"

namespace dtrun::worker {

// Thread-safe. The memory only grows: a part that a reader may still look at is never reused for other data.
class SharedMemory {
 public:
  // Where the system has no such memory, no other process can open it.
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Zero at first, page-aligned. Throws std::bad_alloc.
  Buffer allocate(std::size_t floats);
  // The byte at which a buffer begins in the file. REQUIRES: allocate() made it.
  std::uint64_t offset_of(const float* buffer) const;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;      // -1: the system has no such memory
  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t size_ = 0;    // bytes
  std::map<const float*, std::uint64_t> offsets_;
};

// Another process' SharedMemory, to read. Thread-safe.
class PeerMemory {
 public:
  // Nothing if the system does not let this process open it.
  static std::unique_ptr<PeerMemory> open(pid_t process, int descriptor);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // The buffer of `floats` that begins at `offset`. Throws std::bad_alloc.
  const float* at(std::uint64_t offset, std::size_t floats);

 private:
  explicit PeerMemory(int descriptor) : descriptor_(descriptor) {}
  struct Mapping {
    void* memory;
    std::size_t bytes;
  };
  const int descriptor_;
  std::mutex mutex_;  // guards the members below
  std::map<std::uint64_t, Mapping> mappings_;
};

}  // namespace dtrun::worker
