// The places where the workers of a hung job stood, and the worker that is named.
#include "rendezvous/core/observe/hang.h"

#include <doctest/doctest.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/core/rank_set.h"
#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous::hang_test {
namespace {

const StackLocation kReduces{"all_reduce at train.py:88", Activity::kWaitsForPeers, "a"};
const StackLocation kBarrier{"barrier at train.py:90", Activity::kWaitsForPeers, "a"};
const StackLocation kSleeps{"sleep at loader.py:41", Activity::kElsewhere, "a"};
const StackLocation kFutex{"wait (futex)", Activity::kWaits, "a"};

Hang judged(const std::vector<StackLocation>& locations) {
  std::map<int, StackLocation> by_rank;
  for (std::size_t rank = 0; rank < locations.size(); ++rank)
    by_rank[static_cast<int>(rank)] = locations[rank];
  return judge_hang(by_rank, "no progress for 4 s");
}

StackLocation on(StackLocation location, const std::string& host) {
  location.host = host;
  return location;
}

WorkerOutcome hung(int rank, const StackLocation& location) {
  WorkerOutcome outcome;
  outcome.rank = rank;
  outcome.host = location.host;
  outcome.signal = SIGKILL;
  outcome.cause = EndCause::kHung;
  outcome.error = "no progress for 4 s";
  outcome.where = location.where;
  outcome.activity = location.activity;
  return outcome;
}

Join join(const std::string& id, int nodes, int restarts) {
  Join join;
  join.member_id = join.host = id;
  join.address = "10.0.0.1";
  join.nproc = 2;
  join.min_nodes = join.max_nodes = nodes;
  join.max_restarts = restarts;
  return join;
}

template <typename Body>
const Body* said(const std::vector<Action>& actions, ConnectionId to) {
  for (const Action& action : actions)
    if (const auto* body = std::get_if<Body>(&action.body); body != nullptr && action.to == to) return body;
  return nullptr;
}

}  // namespace

TEST_CASE("the rank that waits for nobody is named, however many wait for it") {
  for (const StackLocation& others : {kReduces, kFutex}) {
    const Hang two = judged({others, kSleeps}), three = judged({others, kSleeps, others});
    CHECK(ranks_text(two.suspects) == "rank 1");
    CHECK(two.verdict == "likely cause: rank 1, which does not wait for another rank");
    CHECK(ranks_text(three.suspects) == "rank 1");
  }
  const Hang most = judged({kReduces, kSleeps, kSleeps});
  CHECK(most.verdict == "likely cause: ranks 1-2, which do not wait for another rank");
}

TEST_CASE("of workers that all wait for peers a clear minority is named") {
  CHECK(judged({kReduces, kBarrier, kReduces}).verdict ==
        "likely cause: rank 1, which is not where the others are");
  CHECK(judged({kReduces, kBarrier, kReduces, kBarrier, kReduces}).suspects.empty());
  CHECK(ranks_text(judged({kReduces, kBarrier, kReduces, kReduces, kReduces, kBarrier}).suspects) ==
        "ranks 1, 5");
}

TEST_CASE("where nobody stands out nobody is named") {
  const Hang alike = judged({kReduces, kReduces, kReduces}), two = judged({kReduces, kBarrier});
  CHECK(alike.suspects.empty());
  CHECK(alike.verdict == "all stand at the same place: no rank stands out");
  CHECK(two.suspects.empty());
  CHECK(two.verdict == "they stand at different places: no rank stands out");
  CHECK(judged({kSleeps, kSleeps}).suspects.empty());
  CHECK(judged({kSleeps}).verdict == "");
}

TEST_CASE("a worker whose heartbeats stopped is known to be the one, whatever it does") {
  StackLocation silent = kReduces;
  silent.activity = Activity::kSilent;
  const Hang hang = judged({kReduces, kReduces, silent, kSleeps});
  CHECK(ranks_text(hang.ranks) == "rank 2");
  CHECK(ranks_text(hang.suspects) == "rank 2");
  CHECK(hang.verdict == "rank 2 stopped giving heartbeats");
}

TEST_CASE("a worker that computes does not hang, but the others wait for it") {
  const Hang hang = judged({kReduces, {"computing in f at a.py:1", Activity::kComputes, "b"}});
  CHECK(ranks_text(hang.ranks) == "rank 0");
  CHECK(hang.verdict == "likely cause: rank 1 on b, which computes");
}

TEST_CASE("workers that all compute, and get nowhere, are all told") {
  const StackLocation computes{"computing in f at a.py:1", Activity::kComputes, "a"};
  CHECK(describe(judged({computes})) == "rank 0 hangs: rank 0: computing in f at a.py:1");
  CHECK(
      describe(judged({computes, computes})) ==
      "ranks 0-1 hang: ranks 0-1: computing in f at a.py:1; all stand at the same place: no rank stands out");
}

TEST_CASE("places are merged, the fullest first, as one line of text") {
  const Hang hang = judged({kSleeps, kReduces, kReduces, kBarrier, kReduces});
  CHECK(places_text(hang, 16) ==
        "ranks 1-2, 4: all_reduce at train.py:88 · rank 0: sleep at loader.py:41 · rank 3: barrier at "
        "train.py:90");
  CHECK(places_text(hang, 1) == "ranks 1-2, 4: all_reduce at train.py:88 · 2 more elsewhere");
  CHECK(describe(judged({kReduces, kSleeps})) ==
        "ranks 0-1 hang: rank 0: all_reduce at train.py:88 · rank 1: sleep at loader.py:41; likely cause: "
        "rank 1, "
        "which does not wait for another rank");
}

TEST_CASE("what is told of ten thousand ranks stays small") {
  std::vector<StackLocation> every, second;
  for (int rank = 0; rank < 10000; ++rank) {
    every.push_back({"read of /data/" + std::to_string(rank), Activity::kElsewhere, "a"});
    second.push_back(rank % 2 == 0 ? kReduces : kBarrier);
  }
  const Hang different = judged(every), alternating = judged(second);
  CHECK(different.places.size() == kMaxPlaces);
  CHECK(different.more == 10000 - static_cast<int>(kMaxPlaces));
  REQUIRE(alternating.places.size() == 2);
  CHECK(alternating.places[0].ranks.size() == kMaxRanges);
  CHECK(alternating.places[0].more == 5000 - static_cast<int>(kMaxRanges));
}

TEST_CASE("the other nodes are asked to look before anybody is killed, and the end merges all places") {
  State state;
  step(state, {.from = 1, .body = join("a", 2, 0)}, 0);
  step(state, {.from = 2, .body = join("b", 2, 0)}, 0);
  REQUIRE(state.phase == Phase::kRunning);
  const auto orders = step(state, {.from = 1, .generation = 1, .body = Failure{hung(0, kReduces)}}, 1000);
  for (const ConnectionId to : {1, 2}) {
    REQUIRE(said<StopOrder>(orders, to) != nullptr);
    CHECK(said<StopOrder>(orders, to)->look);
  }
  WorkerOutcome victim = hung(3, on(kSleeps, "b")), waits = hung(2, on(kReduces, "b"));
  for (WorkerOutcome* other : {&victim, &waits}) {
    other->signal = SIGTERM;
    other->collateral = true;
    other->cause = EndCause::kUnknown;
  }
  step(state, {.from = 1, .generation = 1, .body = Stopped{{hung(0, kReduces), hung(1, kReduces)}}}, 2000);
  const auto ends = step(state, {.from = 2, .generation = 1, .body = Stopped{{waits, victim}}}, 3000);
  REQUIRE(said<Ended>(ends, 1) != nullptr);
  const JobEnd& end = *said<Ended>(ends, 1)->result;
  CHECK(end.exit_code == 128 + SIGKILL);
  REQUIRE(end.hang);
  CHECK(ranks_text(end.hang->ranks) == "ranks 0-3");
  CHECK(places_text(*end.hang, 9) == "ranks 0-2: all_reduce at train.py:88 · rank 3: sleep at loader.py:41");
  CHECK(end.hang->verdict == "likely cause: rank 3 on b, which does not wait for another rank");
  REQUIRE(end.first_failure);
  CHECK(end.first_failure->rank == 3);
  CHECK(end.first_failure->cause == EndCause::kHung);
  REQUIRE(end.followers.size() == 3);
  for (const WorkerOutcome& follower : end.followers) CHECK(follower.cause == EndCause::kHung);
}

TEST_CASE("a hang of many workers is one failure, and names nobody first if nobody stands out") {
  State state;
  step(state, {.from = 1, .body = join("a", 1, 1)}, 0);
  const Stopped both{{hung(0, kReduces), hung(1, kReduces)}};
  step(state, {.from = 1, .generation = 1, .body = Failure{hung(0, kReduces)}}, 1000);
  const auto again = step(state, {.from = 1, .generation = 1, .body = both}, 1000);
  const auto* next = said<Assigned>(again, 1);
  REQUIRE(next != nullptr);
  CHECK(next->membership->restart_count == 1);
  CHECK(next->membership->reason ==
        "ranks 0-1 hang: ranks 0-1: all_reduce at train.py:88; all stand at the same place: no rank stands "
        "out, "
        "restart 1 of 1");
  const auto ends = step(state, {.from = 1, .generation = 2, .body = both}, 2000);
  REQUIRE(said<Ended>(ends, 1) != nullptr);
  CHECK_FALSE(said<Ended>(ends, 1)->result->first_failure);
  CHECK(said<Ended>(ends, 1)->result->followers.size() == 2);
}

TEST_CASE("a failure that is no hang stops the others at once") {
  State state;
  step(state, {.from = 1, .body = join("a", 1, 0)}, 0);
  WorkerOutcome failed = hung(0, {});
  failed.cause = EndCause::kUnknown;
  const auto orders = step(state, {.from = 1, .generation = 1, .body = Failure{failed}}, 1000);
  REQUIRE(said<StopOrder>(orders, 1) != nullptr);
  CHECK_FALSE(said<StopOrder>(orders, 1)->look);
}

}  // namespace dtrun::rendezvous::hang_test
