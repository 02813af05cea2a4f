#include "tests/cuda_on_cpu/traffic.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/memory.h"

namespace cuda_on_cpu {
namespace {

struct Listed {
  std::mutex mutex;  // guards the members below
  bool listing = false;
  std::vector<Launch> launches;
};

Listed& listed() {
  static Listed& listed = *new Listed;
  return listed;
}

// How often each byte of a page was loaded and stored; more than twice is twice.
struct Page {
  static constexpr std::size_t kBytes = 4096;
  std::array<std::uint8_t, kBytes> loads{}, stores{};
};

// The bytes that one launch touched.
class Touched {
 public:
  Touched(std::size_t launch, bool programmatic) : launch_(launch), programmatic_(programmatic) {}

  void load(std::uintptr_t at, std::size_t bytes) {
    const std::size_t found = add(
        at, bytes, [](Page & page) -> auto& { return page.loads; });
    by_a_thread_ = std::max(by_a_thread_, thread() += found);
  }
  void store(std::uintptr_t at, std::size_t bytes) {
    add(
        at, bytes, [](Page & page) -> auto& { return page.stores; });
  }

  void tell() const {
    const std::lock_guard lock(listed().mutex);
    Launch& launch = listed().launches.at(launch_ - 1);
    for (const auto& [number, page] : pages_) {
      if (page == nullptr) continue;
      for (const std::uint8_t times : page->loads) launch.read += times > 0, launch.read_again += times > 1;
      for (const std::uint8_t times : page->stores)
        launch.written += times > 0, launch.written_again += times > 1;
    }
    launch.loaded_by_a_thread = by_a_thread_;
  }

 private:
  // Returns how many of the bytes are device memory.
  template <typename Count>
  std::size_t add(std::uintptr_t at, std::size_t bytes, const Count& count) {
    std::size_t found = 0;
    for (; bytes > 0; ++at, --bytes) {
      Page* const page = page_of(at / Page::kBytes);
      if (page == nullptr) continue;
      if (programmatic_ && !this_block().has_waited())
        fail("device memory is touched before wait_for_previous(), in a kernel that may begin too early");
      std::uint8_t& times = count(*page)[at % Page::kBytes];
      if (times < 2) ++times;
      ++found;
    }
    return found;
  }

  // Bytes that the running thread has loaded. Blocks run one after the other.
  std::size_t& thread() {
    if (blockIdx.x != block_.x || blockIdx.y != block_.y || blockIdx.z != block_.z) {
      block_ = blockIdx;
      of_threads_.fill(0);
    }
    return of_threads_.at((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
  }

  // Null for the host's memory.
  Page* page_of(std::uintptr_t number) {
    if (number == last_ && last_page_ != nullptr) return last_page_;
    auto found = pages_.find(number);
    if (found == pages_.end()) {
      const auto* const begin = reinterpret_cast<const void*>(number * Page::kBytes);
      found = pages_.emplace(number, memory_of(begin) == Memory::kDevice ? std::make_unique<Page>() : nullptr)
                  .first;
    }
    last_ = number, last_page_ = found->second.get();
    return last_page_;
  }

  const std::size_t launch_;
  const bool programmatic_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_ = 0;
  Page* last_page_ = nullptr;
  uint3 block_{};
  std::array<std::size_t, kMaxThreads> of_threads_{};
  std::size_t by_a_thread_ = 0;
};

// That of the thread's current launch; null while nothing is recorded. Functions that are called here may be
// instrumented too.
thread_local Touched* watched = nullptr;

void touch(void (Touched::*how)(std::uintptr_t, std::size_t), const void* at, std::size_t bytes) {
  Touched* const touched = std::exchange(watched, nullptr);
  if (touched == nullptr) return;
  (touched->*how)(reinterpret_cast<std::uintptr_t>(at), bytes);
  watched = touched;
}

}  // namespace

void list_launches() {
  const std::lock_guard lock(listed().mutex);
  listed().launches.clear();
  listed().listing = true;
}

std::vector<Launch> listed_launches() {
  const std::lock_guard lock(listed().mutex);
  listed().listing = false;
  return std::exchange(listed().launches, {});
}

std::size_t list(Launch launch) {
  const std::lock_guard lock(listed().mutex);
  if (!listed().listing) return 0;
  listed().launches.push_back(std::move(launch));
  return listed().launches.size();
}

Watched::Watched(std::size_t launch, bool programmatic) {
  if (launch > 0) watched = new Touched(launch, programmatic);
}

Watched::~Watched() {
  const std::unique_ptr<const Touched> touched(std::exchange(watched, nullptr));
  if (touched) touched->tell();
}

void loaded(const void* from, std::size_t bytes) { touch(&Touched::load, from, bytes); }

void stored(const void* to, std::size_t bytes) { touch(&Touched::store, to, bytes); }

}  // namespace cuda_on_cpu
