#include "rendezvous/wire/trace.h"

#include <algorithm>
#include <cstdint>

namespace dtrun::rendezvous {
namespace {

// Two's complement without overflow, whatever a peer sends.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

int small(std::int64_t number) { return static_cast<int>(std::clamp<std::int64_t>(number, -1, 1 << 30)); }

}  // namespace

void to_wire(std::span<const Operation> operations, v1::WorkerTrace* wire) {
  std::int64_t before = 0;
  for (const Operation& one : operations) {
    const bool waits = one.state == Operation::State::kWaits;
    const std::int64_t numbers[] = {one.generation,
                                    one.step,
                                    static_cast<std::int64_t>(one.kind),
                                    static_cast<std::int64_t>(one.state),
                                    one.bucket,
                                    one.round,
                                    one.peer,
                                    one.lane,
                                    difference(one.began, before),
                                    waits ? -1 : difference(one.ended, one.began)};
    static_assert(std::size(numbers) == kNumbersOfOperation);
    for (const std::int64_t number : numbers) wire->add_operations(number);
    before = one.began;
  }
}

std::vector<Operation> operations_of(const v1::WorkerTrace& wire) {
  std::vector<Operation> operations;
  std::int64_t before = 0;
  const auto whole = static_cast<std::size_t>(wire.operations_size()) / kNumbersOfOperation;
  for (std::size_t i = 0; i < whole; ++i) {
    const auto* const numbers = wire.operations().data() + i * kNumbersOfOperation;
    const auto kind = static_cast<Operation::Kind>(numbers[2]);
    const auto state = static_cast<Operation::State>(numbers[3]);
    Operation one{.generation = numbers[0],
                  .step = numbers[1],
                  .kind = kind < Operation::Kind::kCount ? kind : Operation::Kind::kMessage,
                  .state = state <= Operation::State::kWaits ? state : Operation::State::kBroken,
                  .bucket = small(numbers[4]),
                  .round = small(numbers[5]),
                  .peer = small(numbers[6]),
                  .lane = small(numbers[7]),
                  .began = sum(before, numbers[8])};
    before = one.began;
    if (one.state != Operation::State::kWaits)
      one.ended = sum(one.began, std::max<std::int64_t>(0, numbers[9]));
    operations.push_back(one);
  }
  return operations;
}

}  // namespace dtrun::rendezvous
