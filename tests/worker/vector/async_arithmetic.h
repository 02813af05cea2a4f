// An asynchronous device, to test code that drives one: each stream is a thread that does enqueued work some
// time later, and the host cannot read the device's memory. Work that should have waited for other work's
// event is a data race, which ThreadSanitizer reports, and mostly gives wrong bits; a host that looks behind
// a device pointer, or frees memory that is in use, gets SIGSEGV.
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

class AsyncStream final : public Stream {
 public:
  explicit AsyncStream(unsigned seed) : random_(seed), thread_([this] { run(); }) {}
  ~AsyncStream() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void enqueue(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      ++enqueued_;
    }
    changed_.notify_all();
  }
  Event record() override {
    std::lock_guard lock(mutex_);
    return {.ticket = enqueued_, .stream = this};
  }
  void after(const Event& event) override {
    if (event.stream == nullptr || event.stream == this) return;
    enqueue([this, event] {
      {
        std::lock_guard lock(mutex_);
        waits_for_ = event;
      }
      of(event).wait_for(event.ticket);
    });
  }
  void wait() override { wait_for(record().ticket); }
  // Whether it can go on only once another one has done more. Any thread.
  bool waits_for_another() const {
    std::unique_lock lock(mutex_);
    const Event event = waits_for_;
    lock.unlock();
    return event.stream != nullptr && !of(event).has_done(event.ticket);
  }

 private:
  static const AsyncStream& of(const Event& event) { return dynamic_cast<const AsyncStream&>(*event.stream); }
  bool has_done(std::uint64_t ticket) const {
    std::lock_guard lock(mutex_);
    return done_ >= ticket;
  }
  void wait_for(std::uint64_t ticket) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (random_() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mt19937 random_;       // the thread's
  mutable std::mutex mutex_;  // guards the members below, without the thread
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::uint64_t enqueued_ = 0, done_ = 0;
  bool closing_ = false;
  Event waits_for_;
  std::thread thread_;  // last: it uses all of the above
};

class AsyncArithmetic final : public Arithmetic {
 public:
  // seed: of the delays. An odd one has spare memory.
  explicit AsyncArithmetic(unsigned seed) : has_spare_(seed % 2 != 0), random_(seed) {
    void* const space =
        mmap(nullptr, 2 * kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) throw std::bad_alloc();
    device_ = static_cast<std::byte*>(space);
  }
  ~AsyncArithmetic() override { munmap(device_, 2 * kSpace); }

  // The memory behind a device pointer; host pointers stay unchanged.
  template <typename Float>
  Float* behind(Float* pointer) const {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(device_);
    return at < kSpace ? pointer + kSpace / sizeof(float) : pointer;
  }

  Buffer allocate(Where where, std::size_t floats) override {
    if (where == Where::kHost) return Buffer(floats);
    const std::size_t bytes = (floats * sizeof(float) / kPage + 1) * kPage;
    std::lock_guard lock(mutex_);
    if (used_ + bytes > kSpace) throw std::bad_alloc();
    auto* const memory = reinterpret_cast<float*>(device_ + used_);
    used_ += bytes;
    mprotect(behind(memory), bytes, PROT_READ | PROT_WRITE);
    return {memory, floats, [this, bytes](float* freed) { mprotect(behind(freed), bytes, PROT_NONE); }};
  }
  Buffer spare(std::size_t floats) override {
    return has_spare_ ? allocate(Where::kDevice, floats) : Buffer();
  }
  bool device_is_host() const override { return false; }
  std::unique_ptr<Stream> make_stream() override {
    std::lock_guard lock(mutex_);
    return std::make_unique<AsyncStream>(static_cast<unsigned>(random_()));
  }

  void copy(Stream& stream, float* to, const float* from, std::size_t floats) override {
    enqueue(stream, [=, this] { cpu_->copy(*cpu_stream_, behind(to), behind(from), floats); });
  }
  void accumulate(Stream& stream, float* left, const float* right, std::size_t floats) override {
    enqueue(stream, [=, this] { cpu_->accumulate(*cpu_stream_, behind(left), behind(right), floats); });
  }
  void sum(Stream& stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
           std::size_t floats) override {
    std::vector<const float*> there;
    for (const float* input : inputs) there.push_back(behind(input));
    enqueue(stream, [=, this] { cpu_->sum(*cpu_stream_, sum, there, behind(out), floats); });
  }
  StepResult update(Stream& stream, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors,
                    const Parallel&) override {
    UpdatedVectors there{.size = vectors.size,
                         .parameters = behind(vectors.parameters),
                         .slots = {},
                         .decaying = vectors.decaying,
                         .running = vectors.running,
                         .statistics = vectors.statistics};
    for (float* slot : vectors.slots) there.slots.push_back(behind(slot));
    StepResult result;
    enqueue(stream, [&] { result = cpu_->update(*cpu_stream_, rule, behind(sum), there, {}); });
    stream.wait();
    return result;
  }

  static void enqueue(Stream& stream, std::function<void()> work) {
    dynamic_cast<AsyncStream&>(stream).enqueue(std::move(work));
  }

 private:
  static constexpr std::size_t kPage = 4096, kSpace = std::size_t{1} << 30;

  const std::unique_ptr<Arithmetic> cpu_ = make_cpu_arithmetic();
  const std::unique_ptr<Stream> cpu_stream_ = cpu_->make_stream();
  const bool has_spare_;
  // The device's address space, which is never mapped, and as long again, where its memory lies in truth.
  std::byte* device_ = nullptr;
  std::mutex mutex_;  // guards the members below
  std::size_t used_ = 0;
  std::mt19937 random_;
};

}  // namespace dtrun::worker
