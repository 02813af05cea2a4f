// Writes down what this worker exchanges with its peers, in memory that its agent holds
// (proto/base/operation_ring.h), and while somebody traces the run also what else it does. Any thread;
// without such memory, as in most tests, nothing is written.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>

#include "proto/base/operation_ring.h"

namespace dtrun::worker {

class OperationLog {
 public:
  // Takes ownership of the descriptor of the memory. A worker whose memory cannot be mapped does without.
  static void open(int descriptor) {
    void* const memory =
        mmap(nullptr, sizeof(OperationMemory), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED) return;
    // So that no operation waits for a page. An older kernel finds them one by one.
    madvise(memory, offsetof(OperationMemory, trace), MADV_POPULATE_WRITE);
    memory_ = static_cast<OperationMemory*>(memory);
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
    explicit Wait(Operation operation) : memory_(OperationLog::memory_.load(std::memory_order_relaxed)) {
      if (memory_ == nullptr) return;
      operation.state = Operation::State::kWaits;
      operation_ = complete(operation);
      slot_ = memory_->last.begin(operation_);
    }
    ~Wait() {
      if (memory_ == nullptr) return;
      const bool broken = std::uncaught_exceptions() > exceptions_;
      operation_.state = broken ? Operation::State::kBroken : Operation::State::kDone;
      operation_.ended = now();
      memory_->last.end(slot_, operation_.state, operation_.ended);
      if (is_traced(memory_)) memory_->trace.begin(operation_);
    }
    Wait(const Wait&) = delete;

   private:
    OperationMemory* const memory_;
    Operation operation_;
    std::size_t slot_ = 0;
    const int exceptions_ = std::uncaught_exceptions();
  };

  // An operation that is done at once.
  static void note(Operation operation) {
    OperationMemory* const memory = memory_.load(std::memory_order_relaxed);
    if (memory == nullptr) return;
    operation.state = Operation::State::kDone;
    operation = complete(operation);
    operation.ended = operation.began;
    memory->last.begin(operation);
    if (is_traced(memory)) memory->trace.begin(operation);
  }

  // What this worker did from `began` to `ended`, for a trace.
  static void trace(Operation operation, std::chrono::steady_clock::time_point began,
                    std::chrono::steady_clock::time_point ended) {
    OperationMemory* const memory = memory_.load(std::memory_order_relaxed);
    if (!is_traced(memory)) return;
    operation = complete(operation);
    operation.began = nanoseconds(began);
    operation.ended = nanoseconds(ended);
    memory->trace.begin(operation);
  }

  // The same of the time for which this object exists, unless the trace began meanwhile.
  class Span {
   public:
    explicit Span(Operation::Kind kind) : kind_(kind) {
      if (is_traced(memory_.load(std::memory_order_relaxed))) began_ = std::chrono::steady_clock::now();
    }
    ~Span() {
      if (began_) trace({.kind = kind_}, *began_, std::chrono::steady_clock::now());
    }
    Span(const Span&) = delete;

   private:
    const Operation::Kind kind_;
    std::optional<std::chrono::steady_clock::time_point> began_;
  };

 private:
  static bool is_traced(const OperationMemory* memory) {
    return memory != nullptr && memory->traced.load(std::memory_order_relaxed) != 0;
  }
  static std::int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  }
  static std::int64_t now() { return nanoseconds(std::chrono::steady_clock::now()); }
  static Operation complete(Operation operation) {
    operation.generation = generation_.load(std::memory_order_relaxed);
    operation.step = step_.load(std::memory_order_relaxed);
    operation.began = now();
    return operation;
  }

  inline static std::atomic<OperationMemory*> memory_{nullptr};
  inline static std::atomic<std::int64_t> generation_{0}, step_{0};
};

}  // namespace dtrun::worker
