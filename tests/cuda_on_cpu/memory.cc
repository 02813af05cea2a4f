#include "tests/cuda_on_cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/sanitizer.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kAlignment = 256, kRedZone = 256, kPageBytes = 4096;
// Protecting memory takes as long as it has pages: 0.2 ms for each MiB of small ones, 0.2 us of large ones.
constexpr std::size_t kLargePageBytes = std::size_t{2} << 20;
// Addresses beyond what a device has: freed ones come back late, so a late use is seen, and there is room
// though red zones and gaps take some.
constexpr std::size_t kAddressesPerByte = 4;
// Only the beginning of a larger allocation is filled, so that unused memory costs nothing.
constexpr std::size_t kFilledBytes = std::size_t{8} << 20;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

struct Device {
  char *begin = nullptr, *end = nullptr;  // its addresses
  char* next = nullptr;                   // the search for room begins here
  std::size_t used = 0;
};

class Heap {
 public:
  cudaError_t allocate(int device_number, std::size_t bytes, void** pointer) {
    const std::lock_guard lock(mutex_);
    reserve();
    Device& device = devices_[device_number];
    const std::size_t size = round_up(bytes, kAlignment);
    if (size > machine.memory_bytes - device.used) return cudaErrorMemoryAllocation;
    char* const place = find_room(device, size + kRedZone);
    if (!place) return cudaErrorMemoryAllocation;
    allocations_[place] = {bytes, device_number};
    device.used += size;
    device.next = place + size + kRedZone;
    unpoison(place, bytes);
    poison(place + bytes, size - bytes + kRedZone);
    const DeviceMemoryOpen open;
    std::memset(place, 0xff, std::min(bytes, kFilledBytes));
    *pointer = place;
    return cudaSuccess;
  }

  cudaError_t release(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(static_cast<char*>(pointer));
    if (found == allocations_.end()) return cudaErrorInvalidValue;
    release(found);
    return cudaSuccess;
  }

  cudaError_t allocate_pinned(std::size_t bytes, void** pointer) {
    void* const place = std::aligned_alloc(kPageBytes, round_up(bytes, kPageBytes));
    if (!place) return cudaErrorMemoryAllocation;
    std::memset(place, 0xff, std::min(bytes, kFilledBytes));
    poison(static_cast<char*>(place) + bytes, round_up(bytes, kPageBytes) - bytes);
    const std::lock_guard lock(mutex_);
    pinned_[static_cast<char*>(place)] = {bytes, false};
    *pointer = place;
    return cudaSuccess;
  }

  cudaError_t release_pinned(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(static_cast<char*>(pointer));
    if (found == pinned_.end() || found->second.registered) return cudaErrorInvalidValue;
    unpoison(pointer, round_up(found->second.bytes, kPageBytes));
    std::free(pointer);
    pinned_.erase(found);
    return cudaSuccess;
  }

  cudaError_t register_pinned(void* pointer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    char* const begin = static_cast<char*>(pointer);
    if (pinned_bytes(begin, bytes) > 0) return cudaErrorHostMemoryAlreadyRegistered;
    pinned_[begin] = {bytes, true};
    return cudaSuccess;
  }

  cudaError_t unregister_pinned(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(static_cast<char*>(pointer));
    if (found == pinned_.end() || !found->second.registered) return cudaErrorHostMemoryNotRegistered;
    pinned_.erase(found);
    return cudaSuccess;
  }

  Memory memory_of(const void* pointer) {
    const std::lock_guard lock(mutex_);
    char* const p = static_cast<char*>(const_cast<void*>(pointer));
    if (p >= region_ && p < region_ + region_bytes_) return Memory::kDevice;
    return pinned_bytes(p, 1) > 0 ? Memory::kPinned : Memory::kPageable;
  }

  bool is_of_one_kind(const void* pointer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t pinned = pinned_bytes(static_cast<char*>(const_cast<void*>(pointer)), bytes);
    return pinned == 0 || pinned == bytes;
  }

  bool is_allocated(const void* pointer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    char* const p = static_cast<char*>(const_cast<void*>(pointer));
    auto after = allocations_.upper_bound(p);
    if (after == allocations_.begin()) return false;
    --after;
    return p + bytes <= after->first + after->second.bytes && p + bytes >= p;
  }

  int device_of(const void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto* const p = static_cast<const char*>(pointer);
    const auto owner =
        std::find_if(devices_.begin(), devices_.end(), [&](const Device& device) { return p < device.end; });
    return static_cast<int>(owner - devices_.begin());
  }

  std::size_t free_bytes(int device) {
    const std::lock_guard lock(mutex_);
    reserve();
    return machine.memory_bytes - devices_[device].used;
  }

  Allocated allocated() {
    const std::lock_guard lock(mutex_);
    return {allocations_.size(), pinned_.size()};
  }

  void open() {
    const std::lock_guard lock(open_mutex_);
    if (opened_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(open_mutex_);
    if (--opened_ == 0) protect(PROT_NONE);
  }

 private:
  struct Allocation {
    std::size_t bytes;
    int device;
  };

  struct PinnedRange {
    std::size_t bytes;
    bool registered;  // else it was allocated pinned
  };

  // How many of [begin, begin + bytes).
  std::size_t pinned_bytes(char* begin, std::size_t bytes) const {
    std::size_t sum = 0;
    for (auto it = pinned_.lower_bound(begin + bytes); it != pinned_.begin();) {
      --it;
      char* const end = it->first + it->second.bytes;
      if (end <= begin) break;
      sum += static_cast<std::size_t>(std::min(end, begin + bytes) - std::max(it->first, begin));
    }
    return sum;
  }

  void release(std::map<char*, Allocation>::iterator found) {
    const std::size_t size = round_up(found->second.bytes, kAlignment);
    devices_[found->second.device].used -= size;
    poison(found->first, size);
    give_back(found, size);
    allocations_.erase(found);
  }

  // To the system, the pages that held it, but those that its neighbours are on, too.
  void give_back(std::map<char*, Allocation>::iterator allocation, std::size_t size) const {
    const auto address = [](const char* p) { return reinterpret_cast<std::size_t>(p); };
    std::size_t begin = address(region_), end = begin + region_bytes_;
    if (allocation != allocations_.begin()) {
      const auto before = std::prev(allocation);
      begin = address(before->first) + before->second.bytes;
    }
    if (std::next(allocation) != allocations_.end()) end = address(std::next(allocation)->first);
    const std::size_t place = address(allocation->first);
    begin = std::max(round_up(begin, kLargePageBytes), place / kLargePageBytes * kLargePageBytes);
    end = std::min(end / kLargePageBytes * kLargePageBytes, round_up(place + size, kLargePageBytes));
    if (begin < end) madvise(reinterpret_cast<char*>(begin), end - begin, MADV_DONTNEED);
  }

  // Addresses for what `machine` says; again, once nothing of an older machine is left. The old ones stay
  // taken: they may be poisoned.
  void reserve() {
    const std::size_t each = round_up(machine.memory_bytes * kAddressesPerByte, kLargePageBytes);
    const std::size_t bytes = each * machine.gpus.size();
    if (bytes == region_bytes_ && devices_.size() == machine.gpus.size()) return;
    if (!allocations_.empty()) die("the machine changed while device memory is allocated");
    const std::lock_guard lock(open_mutex_);
    void* const region =
        mmap(nullptr, bytes + kLargePageBytes, opened_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) die("no addresses for device memory");
    region_ = reinterpret_cast<char*>(round_up(reinterpret_cast<std::size_t>(region), kLargePageBytes));
    madvise(region_, bytes, MADV_DONTDUMP);
    madvise(region_, bytes, MADV_HUGEPAGE);  // a system without is slower
    region_bytes_ = bytes;
    devices_.clear();
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
      char* const begin = region_ + i * each;
      // The first red zone lies before the first allocation.
      poison(begin, kRedZone);
      devices_.push_back({begin + kRedZone, begin + each, begin + kRedZone, 0});
    }
  }

  // The next `bytes` free addresses behind device.next; nullptr if there are none.
  char* find_room(const Device& device, std::size_t bytes) const {
    char* place = device.next;
    for (bool again = false;;) {
      if (static_cast<std::size_t>(device.end - place) < bytes) {
        if (again) return nullptr;
        again = true;
        place = device.begin;
      }
      const auto behind = allocations_.lower_bound(place);
      if (behind != allocations_.begin()) {
        const auto before = std::prev(behind);
        char* const end = before->first + round_up(before->second.bytes, kAlignment) + kRedZone;
        if (end > place) {
          place = end;
          continue;
        }
      }
      if (behind == allocations_.end() || place + bytes <= behind->first) return place;
      place = behind->first + round_up(behind->second.bytes, kAlignment) + kRedZone;
    }
  }

  void protect(int how) const {
    if (region_ && mprotect(region_, region_bytes_, how) != 0) die("mprotect of device memory");
  }

  [[noreturn]] static void die(const char* what) {
    std::fprintf(stderr, "cuda_on_cpu: %s\n", what);
    std::abort();
  }

  std::mutex mutex_;  // guards all below but opened_
  char* region_ = nullptr;
  std::size_t region_bytes_ = 0;
  std::vector<Device> devices_;
  std::map<char*, Allocation> allocations_;
  std::map<char*, PinnedRange> pinned_;  // none overlaps another
  std::mutex open_mutex_;                // guards opened_, and the region's protection and place
  int opened_ = 0;
};

Heap& heap() {
  static Heap& heap = *new Heap;
  return heap;
}

}  // namespace

cudaError_t allocate(int device, std::size_t bytes, void** pointer) {
  return heap().allocate(device, bytes, pointer);
}
cudaError_t release(void* pointer) { return heap().release(pointer); }
cudaError_t allocate_pinned(std::size_t bytes, void** pointer) {
  return heap().allocate_pinned(bytes, pointer);
}
cudaError_t release_pinned(void* pointer) { return heap().release_pinned(pointer); }
cudaError_t register_pinned(void* pointer, std::size_t bytes) {
  return heap().register_pinned(pointer, bytes);
}
cudaError_t unregister_pinned(void* pointer) { return heap().unregister_pinned(pointer); }
Memory memory_of(const void* pointer) { return heap().memory_of(pointer); }
bool is_of_one_kind(const void* pointer, std::size_t bytes) { return heap().is_of_one_kind(pointer, bytes); }
bool is_allocated(const void* pointer, std::size_t bytes) { return heap().is_allocated(pointer, bytes); }
int device_of(const void* pointer) { return heap().device_of(pointer); }
std::size_t free_bytes(int device) { return heap().free_bytes(device); }
Allocated allocated() { return heap().allocated(); }

DeviceMemoryOpen::DeviceMemoryOpen() { heap().open(); }
DeviceMemoryOpen::~DeviceMemoryOpen() { heap().close(); }

}  // namespace cuda_on_cpu
