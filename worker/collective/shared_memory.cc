#include "worker/collective/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

WorkerError beyond_file_size_limit(std::uint64_t bytes) {
  return {kExitOsError,
          "workers of one host share memory, for which its limit on the size of files holds too "
          "(ulimit -f), and need " +
              std::to_string(bytes) + " bytes of it; raise that limit"};
}

}  // namespace

SharedMemory::SharedMemory() : descriptor_(memfd_create("dtrun", MFD_CLOEXEC)) {}

SharedMemory::~SharedMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

Buffer SharedMemory::allocate(std::size_t floats) {
  const std::uint64_t bytes = whole_pages(floats * sizeof(float));
  std::lock_guard lock(mutex_);
  if (descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(size_ + bytes)) != 0) {
    if (errno == EFBIG) throw beyond_file_size_limit(size_ + bytes);
    throw std::bad_alloc();
  }
  const int kind = descriptor_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor_, static_cast<off_t>(size_));
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const values = static_cast<float*>(memory);
  offsets_[values] = size_;
  size_ += bytes;
  return {values, floats, [bytes](float* freed) { munmap(freed, bytes); }};
}

std::uint64_t SharedMemory::offset_of(const float* buffer) const {
  std::lock_guard lock(mutex_);
  return offsets_.at(buffer);
}

std::unique_ptr<PeerMemory> PeerMemory::open(pid_t process, int descriptor) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return file < 0 ? nullptr : std::unique_ptr<PeerMemory>(new PeerMemory(file));
}

PeerMemory::~PeerMemory() {
  for (const auto& [offset, mapping] : mappings_) munmap(mapping.memory, mapping.bytes);
  close(descriptor_);
}

const float* PeerMemory::at(std::uint64_t offset, std::size_t floats) {
  std::lock_guard lock(mutex_);
  Mapping& mapping = mappings_[offset];
  if (mapping.memory == nullptr) {
    const std::uint64_t bytes = whole_pages(floats * sizeof(float));
    void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, static_cast<off_t>(offset));
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapping = {.memory = memory, .bytes = bytes};
  }
  return static_cast<const float*>(mapping.memory);
}

}  // namespace dtrun::worker
