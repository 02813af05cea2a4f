// The last operations of one worker's exchange with its peers, in memory that its agent holds: the agent can
// read them while the worker stands still, and after it was killed. The memory (a memfd) is all zero at
// first. While somebody traces the run, a longer ring beside it has all that the worker does.
//
// Threads of the worker write one after the other: one that the kernel stops between two words of its slot
// would otherwise wake up after the others have gone around the ring, and write over what is newer. A reader
// takes no lock, and leaves out a slot that changes while it is read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/core/operation.h"

namespace dtrun {

template <std::size_t kCount>
class RingOf {
 public:
  static constexpr std::size_t kSlots = kCount;

  // Begins an operation, which is its slot's until end(). An operation that waits keeps its slot: later ones
  // go around it.
  std::size_t begin(const Operation& operation) noexcept;
  void end(std::size_t slot, Operation::State state, std::int64_t now) noexcept;

  // The newest kSlots operations, oldest first. Any process that maps the memory, at any time.
  std::vector<Operation> read() const;

  // Operations whose numbers are above `after`, `most` at most, oldest first. REQUIRES: none waits.
  struct Newer {
    std::vector<Operation> operations = {};
    std::uint64_t last = 0;  // of these, the number to read on after
    std::int64_t lost = 0;   // that were written over before they were read
    bool more = false;
  };
  Newer read_after(std::uint64_t after, std::size_t most) const;

 private:
  // Words of their own, since a reader sees each change at once, and the whole only by `number`.
  struct Slot {
    std::atomic<std::uint64_t> number;  // of its operation, from 1 on; 0: empty, or being written
    std::atomic<std::int64_t> generation, step;
    std::atomic<std::uint32_t> kind, state;
    std::atomic<std::int32_t> bucket, round, peer, lane;
    std::atomic<std::int64_t> began, ended;
  };
  static std::optional<Operation> copy(const Slot& slot, std::uint64_t number);
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);

  std::atomic_flag written_;         // by a thread in begin(). All zero is clear
  std::atomic<std::uint64_t> last_;  // number of the newest operation
  std::array<Slot, kSlots> slots_;
};
extern template class RingOf<256>;
extern template class RingOf<16384>;

using OperationRing = RingOf<256>;
using TraceRing = RingOf<16384>;

// A worker's memory. Of the last part no page exists before it is traced.
struct OperationMemory {
  OperationRing last;
  std::atomic<std::uint32_t> traced;  // 1: the worker writes `trace` too. The agent sets it
  alignas(4096) TraceRing trace;
};

}  // namespace dtrun
