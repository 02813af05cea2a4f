#include "proto/base/operation_ring.h"

#include <algorithm>
#include <utility>

namespace dtrun {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

}  // namespace

std::size_t OperationRing::begin(const Operation& operation) noexcept {
  constexpr auto kWaits = static_cast<std::uint32_t>(Operation::State::kWaits);
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
  slot.began.store(operation.began, relaxed);
  slot.ended.store(operation.ended, relaxed);
  slot.number.store(number, std::memory_order_release);
  return at;
}

void OperationRing::end(std::size_t slot, Operation::State state, std::int64_t now) noexcept {
  slots_[slot].ended.store(now, relaxed);
  slots_[slot].state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

std::vector<Operation> OperationRing::read() const {
  std::vector<std::pair<std::uint64_t, Operation>> found;
  for (const Slot& slot : slots_) {
    const std::uint64_t number = slot.number.load(std::memory_order_acquire);
    if (number == 0) continue;
    // The state comes first: an operation that has ended has its end written.
    const auto state = static_cast<Operation::State>(slot.state.load(std::memory_order_acquire));
    const Operation operation{.generation = slot.generation.load(relaxed),
                              .step = slot.step.load(relaxed),
                              .kind = static_cast<Operation::Kind>(slot.kind.load(relaxed)),
                              .state = state,
                              .bucket = slot.bucket.load(relaxed),
                              .round = slot.round.load(relaxed),
                              .peer = slot.peer.load(relaxed),
                              .began = slot.began.load(relaxed),
                              .ended = state == Operation::State::kWaits ? 0 : slot.ended.load(relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.number.load(relaxed) == number) found.emplace_back(number, operation);
  }
  std::ranges::sort(found, {}, [](const auto& each) { return each.first; });
  std::vector<Operation> operations;
  for (auto& [number, operation] : found) operations.push_back(operation);
  return operations;
}

}  // namespace dtrun
