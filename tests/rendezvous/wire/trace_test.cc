#include "rendezvous/wire/trace.h"

#include <doctest/doctest.h>

#include <limits>

namespace dtrun::rendezvous::trace_test {

TEST_CASE("operations arrive as they were written, also one that waits") {
  using Kind = Operation::Kind;
  const std::vector<Operation> written{
      {.generation = 3, .step = 12, .kind = Kind::kSend, .bucket = 2, .round = 1, .began = 900, .ended = 900},
      {.generation = 3, .step = 12, .kind = Kind::kMath, .lane = 5, .began = 400, .ended = 1700},
      {.generation = 4,
       .step = 13,
       .kind = Kind::kReceive,
       .state = Operation::State::kWaits,
       .bucket = 0,
       .peer = 7,
       .began = 5000}};
  v1::WorkerTrace wire, again;
  to_wire(written, &wire);
  REQUIRE(again.ParseFromString(wire.SerializeAsString()));
  CHECK(operations_of(again) == written);
  CHECK(again.ByteSizeLong() < 60);
}

TEST_CASE("numbers of any size are taken without a fault") {
  v1::WorkerTrace wire;
  for (int i = 0; i < 3; ++i)
    for (std::size_t n = 0; n < kNumbersOfOperation; ++n)
      wire.add_operations(n % 2 == 0 ? std::numeric_limits<std::int64_t>::max()
                                     : std::numeric_limits<std::int64_t>::min());
  wire.add_operations(1);
  CHECK(operations_of(wire).size() == 3);
}

}  // namespace dtrun::rendezvous::trace_test
