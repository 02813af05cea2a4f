// A node for which the running ones make room.
#include <doctest/doctest.h>

#include <string>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous::room_test {
namespace {

// One or two nodes of two workers, whose workers may outlive generations.
Join member(const std::string& id) {
  Join join;
  join.member_id = join.host = id;
  join.address = "10.0.0.1";
  join.nproc = 2;
  join.min_nodes = 1;
  join.max_nodes = 2;
  join.last_call = 0;
  join.in_memory_recovery = true;
  return join;
}

}  // namespace

TEST_CASE("a node that makes room before its workers outlive anything is part of the next generation") {
  State state;
  const auto happens = [&](ConnectionId from, decltype(Event::body) body) {
    step(state, {.from = from, .generation = state.generation, .body = std::move(body)}, 1000);
  };
  happens(1, member("a"));
  REQUIRE(state.generation == 1);
  happens(2, member("b"));
  happens(2, Ready{});
  REQUIRE(state.phase == Phase::kStopping);
  WorkerOutcome ended;
  ended.signal = 15;
  ended.collateral = true;
  happens(1, Stopped{.outcomes = {ended}, .workers = 0});
  REQUIRE(state.generation == 2);
  CHECK(state.current.membership->world_size == 4);
}

}  // namespace dtrun::rendezvous::room_test
