// The decision by itself, and in a simulation: ranks that make random progress and die at random, whose
// parameters are hashes of all that went into them. Whatever happens, the last one is the same.
#include "worker/trainer/recovery/local_start.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "worker/core/local_replicas.h"

namespace dtrun::worker {
namespace {

using Hash = std::uint64_t;

Hash mix(Hash a, Hash b) {
  a = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;
  return a ^ (a >> 33);
}

struct SimReplica {
  std::int64_t step = 0;
  Hash parameters = 1, slot = 2, handed_in = 0;
  bool arrived = false;
};

struct SimState {  // of a sync
  std::int64_t sync = 0;
  Hash outer = 1;
  std::vector<SimReplica> replicas;
};

struct SimRank {
  std::int64_t sync = -1;
  bool arrived = false;
  Hash outer = 0;
  std::map<std::int64_t, SimReplica> own;
  std::optional<SimState> kept;
  bool keeping = false;  // waits for the others' state of its sync

  HeldReplicas held(int replicas) const {
    HeldReplicas held{.sync = sync, .arrived = arrived, .steps = {}, .kept = kept ? kept->sync : -1};
    held.steps.assign(static_cast<std::size_t>(replicas), -1);
    for (const auto& [number, one] : own) held.steps[static_cast<std::size_t>(number)] = one.step;
    return held;
  }
};

struct Job {
  int replicas = 2;
  SyncTimes times;
  bool keeps = false;  // every sync
};

class Generation {
 public:
  Generation(const Job& job, std::vector<SimRank>& ranks) : job_(job), ranks_(ranks) {}

  // The next thing that this rank can do without waiting. Returns whether there was one.
  bool advance(int rank) {
    SimRank& self = ranks_[static_cast<std::size_t>(rank)];
    if (self.sync == job_.times.last && !self.keeping) return false;
    if (self.keeping) return keep(self);
    const LocalShare share = share_of(rank);
    const auto arrival = job_.times.arrival(self.sync);
    for (auto& [number, one] : self.own) {
      if (!arrival) break;
      if (one.step == self.sync) one.handed_in = one.parameters;
      if (hands_in(share, number) && !self.arrived) met_[{self.sync, number}] = one.handed_in;
    }
    std::int64_t number = job_.times.last;
    for (const auto& [unused, one] : self.own) number = std::min(number, one.step);
    if (arrival == number && !self.arrived) {
      if (!all_met(self.sync)) return false;
      self.outer = outer_step(self.outer, self.sync);
      self.arrived = true;
    }
    for (auto& [unused, one] : self.own)
      if (arrival == number && one.step == number && !one.arrived)
        one.parameters = mix(one.parameters, self.outer), one.arrived = true;
    const std::int64_t end = next_sync(self.sync, job_.times.every, job_.times.last);
    return number < end ? step(self, share, number) : meet(self, share, end);
  }

 private:
  LocalShare share_of(int rank) const {
    return share_of_rank(job_.replicas, rank, static_cast<int>(ranks_.size()));
  }
  static bool hands_in(const LocalShare& share, std::int64_t number) {
    return share.handed_in.begin <= number && number < share.handed_in.end;
  }
  bool all_met(std::int64_t sync) const {
    for (int number = 0; number < job_.replicas; ++number)
      if (!met_.contains({sync, number})) return false;
    return true;
  }
  Hash outer_step(Hash outer, std::int64_t sync) const {
    for (int number = 0; number < job_.replicas; ++number) outer = mix(outer, met_.at({sync, number}));
    return outer;
  }
  // Its group's other ranks must have come as far.
  bool step(SimRank& self, const LocalShare& share, std::int64_t number) {
    for (auto& [which, one] : self.own) {
      if (one.step != number) continue;
      for (std::int64_t peer = share.group.begin; peer < share.group.end; ++peer)
        if (ranks_[static_cast<std::size_t>(peer)].own.at(which).step < number) return false;
      one.slot = mix(one.slot, mix(one.parameters, static_cast<Hash>(number)));
      one.parameters = mix(one.parameters, mix(one.slot, static_cast<Hash>(which)));
      ++one.step;
      return true;
    }
    return false;
  }
  bool meet(SimRank& self, const LocalShare& share, std::int64_t end) {
    const bool at_once = job_.times.delay == 0 || end == job_.times.last;
    const std::int64_t key = at_once ? end : -end;  // of the sum of statistics alone
    for (const auto& [number, one] : self.own)
      if (hands_in(share, number)) met_[{key, number}] = one.parameters;
    if (!all_met(key)) return false;
    if (at_once) self.outer = outer_step(self.outer, key);
    for (auto& [number, one] : self.own) {
      if (at_once) one.parameters = self.outer;
      one.arrived = false;
    }
    self.sync = end, self.arrived = false, self.keeping = job_.keeps;
    return true;
  }
  // A rank that has sent its replicas' state may still be without the others'.
  bool keep(SimRank& self) {
    for (const auto& [number, one] : self.own) sent_[{self.sync, number}] = one;
    SimState state{.sync = self.sync, .outer = self.outer, .replicas = {}};
    for (int number = 0; number < job_.replicas; ++number) {
      const auto one = sent_.find({self.sync, number});
      if (one == sent_.end()) return false;
      state.replicas.push_back(one->second);
    }
    self.kept = state;
    self.keeping = false;
    return true;
  }

  const Job& job_;
  std::vector<SimRank>& ranks_;
  std::map<std::pair<std::int64_t, std::int64_t>, Hash> met_;         // by sync and replica
  std::map<std::pair<std::int64_t, std::int64_t>, SimReplica> sent_;  // by sync and replica
};

void give_all(const Job& job, std::vector<SimRank>& ranks, const SimState& state) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    SimRank& self = ranks[rank];
    self.sync = state.sync, self.arrived = false, self.keeping = false, self.outer = state.outer;
    self.own.clear();
    const LocalShare share =
        share_of_rank(job.replicas, static_cast<int>(rank), static_cast<int>(ranks.size()));
    for (std::int64_t number = share.replicas.begin; number < share.replicas.end; ++number)
      self.own[number] = state.replicas[static_cast<std::size_t>(number)];
  }
}

void hand_over(const Job& job, std::vector<SimRank>& ranks, const LocalStart& start) {
  const SimRank source = ranks[static_cast<std::size_t>(start.source)];
  const bool at_once = job.times.delay == 0 || start.sync == job.times.last;
  for (SimRank& self : ranks) {
    for (auto& [number, one] : self.own) {
      if (self.sync == start.sync || one.step != start.sync) continue;
      if (at_once) one.parameters = source.outer;
      one.arrived = false;
    }
    self.sync = start.sync, self.arrived = start.arrived, self.outer = source.outer;
    self.keeping = false;
  }
  const std::vector<SimRank> before = ranks;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const LocalShare share =
        share_of_rank(job.replicas, static_cast<int>(rank), static_cast<int>(ranks.size()));
    ranks[rank].own.clear();
    for (std::int64_t number = share.replicas.begin; number < share.replicas.end; ++number) {
      const auto which = static_cast<std::size_t>(number);
      const LocalStart::Replica& one = start.replicas[which];
      const SimRank& from = before[static_cast<std::size_t>(one.from)];
      ranks[rank].own[number] = one.redone ? from.kept.value().replicas[which] : from.own.at(number);
      CHECK(ranks[rank].own[number].step == one.step);
    }
  }
}

bool complete(const Job& job, const std::vector<SimRank>& ranks) {
  return std::ranges::all_of(
      ranks, [&](const SimRank& rank) { return rank.sync == job.times.last && !rank.keeping; });
}

struct Run {
  Hash outer = 0;
  int went_on = 0, went_back = 0;
};

Run simulate(const Job& job, int world, std::uint64_t seed, int deaths) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  const SimState initial{.replicas = std::vector<SimReplica>(static_cast<std::size_t>(job.replicas))};
  std::vector<SimRank> ranks(static_cast<std::size_t>(world));
  give_all(job, ranks, initial);
  Run run;
  for (;;) {
    Generation generation(job, ranks);
    // The last death may come when all is done.
    for (std::size_t left = deaths > 0 ? 1 + below(150) : 1000000; left > 0; --left) {
      generation.advance(static_cast<int>(below(ranks.size())));
      if (complete(job, ranks) && deaths == 0) return {ranks[0].outer, run.went_on, run.went_back};
    }
    REQUIRE(deaths-- > 0);
    // Any may die, and others come, before or behind those that are left.
    std::vector<SimRank> left;
    const std::size_t dies = below(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (rank != dies && below(4) != 0) left.push_back(ranks[rank]);
    for (std::size_t more = below(3); more > 0 || left.empty(); more -= more > 0 ? 1 : 0)
      left.insert(left.begin() + static_cast<std::ptrdiff_t>(below(left.size() + 1)), SimRank());
    ranks = left;
    std::vector<HeldReplicas> all;
    for (const SimRank& rank : ranks) all.push_back(rank.held(job.replicas));
    if (const auto start = start_of_replicas(all, job.replicas, false)) {
      ++run.went_on;
      hand_over(job, ranks, *start);
      continue;
    }
    ++run.went_back;
    const auto newest = std::ranges::max_element(all, {}, &HeldReplicas::kept);
    const SimRank keeper = ranks[static_cast<std::size_t>(newest - all.begin())];
    give_all(job, ranks, keeper.kept ? *keeper.kept : initial);
  }
}

}  // namespace

TEST_CASE("whoever dies, and whenever: all go on from whole replicas, and end with the same bits") {
  int went_on = 0, went_back = 0;
  for (const std::int64_t delay : {0, 2}) {
    for (const int replicas : {2, 3}) {
      Job job{.replicas = replicas, .times = {.every = 3, .fragments = 1, .delay = delay, .last = 14}};
      const Hash wanted = simulate(job, 1, 1, 0).outer;
      CHECK(simulate(job, 5, 2, 0).outer == wanted);
      for (std::uint64_t seed = 0; seed < 400; ++seed) {
        CAPTURE(delay);
        CAPTURE(replicas);
        CAPTURE(seed);
        job.keeps = seed % 2 == 0;
        const Run run = simulate(job, 1 + static_cast<int>(seed % 7), seed, 6);
        REQUIRE(run.outer == wanted);
        went_on += run.went_on, went_back += run.went_back;
      }
    }
  }
  CHECK(went_on > 1000);
  CHECK(went_back > 1000);
}

TEST_CASE("a group of two that loses one rank loses nothing, a group of one what is behind the sync") {
  // Replica 0 had ranks 0 and 1, of which 0 is left, and replica 1 had rank 2.
  const HeldReplicas left{.sync = 8, .arrived = false, .steps = {13, -1}, .kept = -1};
  const HeldReplicas other{.sync = 8, .arrived = false, .steps = {-1, 10}, .kept = -1};
  const std::vector<HeldReplicas> both{left, other};
  const auto start = start_of_replicas(both, 2, false);
  REQUIRE(start.has_value());
  CHECK(start->sync == 8);
  CHECK((start->replicas[0].step == 13 && start->replicas[1].step == 10 && start->replicas[1].from == 1));
  CHECK(in_words(*start) == "; no replica loses more than the step in hand");

  HeldReplicas slower = left;
  slower.steps[0] = 12;
  const std::vector<HeldReplicas> three{slower, left, other};
  CHECK(start_of_replicas(three, 2, false).value().replicas[0].from == 1);

  HeldReplicas alone = left;
  CHECK_FALSE(start_of_replicas({&alone, 1}, 2, false));  // its optimizer's state is nowhere
  const auto alike = start_of_replicas({&alone, 1}, 2, true);
  REQUIRE(alike.has_value());
  CHECK(in_words(*alike) == "; replica 1 is redone from step 8");
  alone.kept = 4;
  CHECK_FALSE(start_of_replicas({&alone, 1}, 2, false));  // too old: replica 0 has passed a sync since
  alone.kept = 8;
  const auto kept = start_of_replicas({&alone, 1}, 2, false);
  REQUIRE(kept.has_value());
  CHECK((kept->replicas[0].step == 13 && !kept->replicas[0].redone));
  CHECK((kept->replicas[1].step == 8 && kept->replicas[1].redone));
  CHECK_FALSE(start_of_replicas(std::vector<HeldReplicas>(3), 2, true));  // all are new
}

TEST_CASE("a rank that had not passed the newest sync counts if it stands right before it") {
  const HeldReplicas ahead{.sync = 8, .arrived = false, .steps = {9, -1}, .kept = -1};
  HeldReplicas behind{.sync = 4, .arrived = true, .steps = {-1, 8}, .kept = -1};
  const std::vector<HeldReplicas> ready{behind, ahead};
  const auto start = start_of_replicas(ready, 2, false);
  REQUIRE(start.has_value());
  CHECK((start->source == 1 && start->sync == 8 && start->replicas[1].step == 8));
  behind.steps = {-1, 7};
  const std::vector<HeldReplicas> late{behind, ahead};
  CHECK_FALSE(start_of_replicas(late, 2, false));
}

}  // namespace dtrun::worker
