// The last operations of one worker's exchange with its peers, in memory that its agent holds: the agent can
// read them while the worker stands still, and after it was killed. The memory (a memfd) is all zero at
// first.
//
// Threads of the worker write without a lock, each to a slot of its own; a reader leaves out a slot that
// changes while it is read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/core/operation.h"

namespace dtrun {

class OperationRing {
 public:
  static constexpr std::size_t kSlots = 256;

  // Begins an operation, which is its slot's until end(). An operation that waits keeps its slot: later ones
  // go around it.
  std::size_t begin(const Operation& operation) noexcept;
  void end(std::size_t slot, Operation::State state, std::int64_t now) noexcept;

  // The newest kSlots operations, oldest first. Any process that maps the memory, at any time.
  std::vector<Operation> read() const;

 private:
  // Words of their own, since a reader sees each change at once, and the whole only by `number`.
  struct Slot {
    std::atomic<std::uint64_t> number;  // of its operation, from 1 on; 0: empty, or being written
    std::atomic<std::int64_t> generation, step;
    std::atomic<std::uint32_t> kind, state;
    std::atomic<std::int32_t> bucket, round, peer;
    std::atomic<std::int64_t> began, ended;
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);

  std::atomic<std::uint64_t> last_;  // number of the newest operation
  std::array<Slot, kSlots> slots_;
};

}  // namespace dtrun
