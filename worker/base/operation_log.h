// Writes down what this worker exchanges with its peers, in memory that its agent holds
// (proto/base/operation_ring.h). Any thread; without such memory, as in most tests, nothing is written.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>

#include "proto/base/operation_ring.h"

namespace dtrun::worker {

class OperationLog {
 public:
  // Takes ownership of the descriptor of the memory. A worker whose memory cannot be mapped does without.
  static void open(int descriptor) {
    void* const memory = mmap(nullptr, sizeof(OperationRing), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_POPULATE, descriptor, 0);
    close(descriptor);
    if (memory != MAP_FAILED) ring_ = static_cast<OperationRing*>(memory);
  }

  // What later operations belong to. `step`: done so far.
  static void at(std::int64_t generation, std::int64_t step) {
    generation_.store(generation, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
  }

  // An operation that waits for as long as this object exists. The function that waits makes one itself, so
  // that no caller can forget it.
  class Wait {
   public:
    explicit Wait(Operation operation) : ring_(OperationLog::ring_.load(std::memory_order_relaxed)) {
      operation.state = Operation::State::kWaits;
      if (ring_ != nullptr) slot_ = ring_->begin(complete(operation));
    }
    ~Wait() {
      if (ring_ == nullptr) return;
      const bool broken = std::uncaught_exceptions() > exceptions_;
      ring_->end(slot_, broken ? Operation::State::kBroken : Operation::State::kDone, now());
    }
    Wait(const Wait&) = delete;

   private:
    OperationRing* const ring_;
    std::size_t slot_ = 0;
    const int exceptions_ = std::uncaught_exceptions();
  };

  // An operation that has just been done.
  static void note(Operation operation) {
    OperationRing* const ring = ring_.load(std::memory_order_relaxed);
    if (ring == nullptr) return;
    operation.state = Operation::State::kDone;
    operation = complete(operation);
    operation.ended = operation.began;
    ring->begin(operation);
  }

 private:
  static std::int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static Operation complete(Operation operation) {
    operation.generation = generation_.load(std::memory_order_relaxed);
    operation.step = step_.load(std::memory_order_relaxed);
    operation.began = now();
    return operation;
  }

  inline static std::atomic<OperationRing*> ring_{nullptr};
  inline static std::atomic<std::int64_t> generation_{0}, step_{0};
};

}  // namespace dtrun::worker
