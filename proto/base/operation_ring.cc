#include "proto/base/operation_ring.h"

#include <algorithm>
#include <utility>

namespace dtrun {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

}  // namespace

template <std::size_t kCount>
std::size_t RingOf<kCount>::begin(const Operation& operation) noexcept {
  constexpr auto kWaits = static_cast<std::uint32_t>(Operation::State::kWaits);
  while (written_.test_and_set(std::memory_order_acquire)) written_.wait(true, relaxed);
  std::uint64_t number = 0;
  std::size_t at = 0;
  for (std::size_t tries = 0; tries < kSlots; ++tries) {
    number = last_.fetch_add(1, relaxed) + 1;
    at = number % kSlots;
    if (slots_[at].state.load(relaxed) != kWaits) break;
  }
  Slot& slot = slots_[at];
  slot.number.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.generation.store(operation.generation, relaxed);
  slot.step.store(operation.step, relaxed);
  slot.kind.store(static_cast<std::uint32_t>(operation.kind), relaxed);
  slot.state.store(static_cast<std::uint32_t>(operation.state), relaxed);
  slot.bucket.store(operation.bucket, relaxed);
  slot.round.store(operation.round, relaxed);
  slot.peer.store(operation.peer, relaxed);
  slot.lane.store(operation.lane, relaxed);
  slot.began.store(operation.began, relaxed);
  slot.ended.store(operation.ended, relaxed);
  slot.number.store(number, std::memory_order_release);
  written_.clear(std::memory_order_release);
  written_.notify_one();
  return at;
}

template <std::size_t kCount>
void RingOf<kCount>::end(std::size_t slot, Operation::State state, std::int64_t now) noexcept {
  slots_[slot].ended.store(now, relaxed);
  slots_[slot].state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

// Nothing if the slot has another one, or changes.
template <std::size_t kCount>
std::optional<Operation> RingOf<kCount>::copy(const Slot& slot, std::uint64_t number) {
  if (slot.number.load(std::memory_order_acquire) != number) return std::nullopt;
  // The state comes first: an operation that has ended has its end written.
  const auto state = static_cast<Operation::State>(slot.state.load(std::memory_order_acquire));
  const Operation operation{.generation = slot.generation.load(relaxed),
                            .step = slot.step.load(relaxed),
                            .kind = static_cast<Operation::Kind>(slot.kind.load(relaxed)),
                            .state = state,
                            .bucket = slot.bucket.load(relaxed),
                            .round = slot.round.load(relaxed),
                            .peer = slot.peer.load(relaxed),
                            .lane = slot.lane.load(relaxed),
                            .began = slot.began.load(relaxed),
                            .ended = state == Operation::State::kWaits ? 0 : slot.ended.load(relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return slot.number.load(relaxed) == number ? std::optional(operation) : std::nullopt;
}

template <std::size_t kCount>
std::vector<Operation> RingOf<kCount>::read() const {
  std::vector<std::pair<std::uint64_t, Operation>> found;
  for (const Slot& slot : slots_) {
    const std::uint64_t number = slot.number.load(std::memory_order_acquire);
    if (number == 0) continue;
    if (const auto operation = copy(slot, number)) found.emplace_back(number, *operation);
  }
  std::ranges::sort(found, {}, [](const auto& each) { return each.first; });
  std::vector<Operation> operations;
  for (auto& [number, operation] : found) operations.push_back(operation);
  return operations;
}

// Stops before one that is being written: it is there the next time.
template <std::size_t kCount>
typename RingOf<kCount>::Newer RingOf<kCount>::read_after(std::uint64_t after, std::size_t most) const {
  const std::uint64_t last = last_.load(std::memory_order_acquire);
  Newer newer{.last = after};
  if (last > after + kSlots) {
    newer.last = last - kSlots;
    newer.lost = static_cast<std::int64_t>(newer.last - after);
  }
  for (; newer.last < last && newer.operations.size() < most; ++newer.last) {
    const std::uint64_t number = newer.last + 1;
    const Slot& slot = slots_[number % kSlots];
    const auto operation = copy(slot, number);
    if (!operation && slot.number.load(relaxed) <= number) return newer;
    if (operation)
      newer.operations.push_back(*operation);
    else
      ++newer.lost;
  }
  newer.more = newer.last < last;
  return newer;
}

template class RingOf<256>;
template class RingOf<16384>;

}  // namespace dtrun
