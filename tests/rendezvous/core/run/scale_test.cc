// A run of 16,384 workers on 2,048 nodes, event by event: the messages of the coordinator's core, and its
// time for each event. Runs with a quarter and four times as many nodes beside it show numbers that grow
// faster than the nodes. The program prints the times and asserts none; docs/scale.md has them.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/run/state.h"
#include "tests/rendezvous/core/run/invariants.h"
#include "tests/support/clock.h"

namespace dtrun::rendezvous::scale_test {
namespace {

constexpr int kWorkers = 8;  // per node
constexpr int kSigterm = 15;

struct SimNode {
  std::string host;
  int lives = 0;  // each agent on it has an id of its own
  ConnectionId connection = 0;
  int rank = -1, first_rank = 0;
  int workers = 0;  // that can be part of the next generation
  bool told_to_stop = false, ended = false;

  MemberId id() const { return host + "." + std::to_string(lives); }
};

// Nodes that answer at once. `in_memory_recovery`: workers outlive generations.
class Cluster {
 public:
  Cluster(int nodes, int min_nodes, bool in_memory_recovery)
      : nodes_(static_cast<std::size_t>(nodes)), min_nodes_(min_nodes), warms_up_(in_memory_recovery) {
    for (int i = 0; i < nodes; ++i) node(i).host = "node" + std::to_string(i);
  }

  SimNode& node(int i) { return nodes_[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  const State& state() const { return state_; }

  void join(int i, bool runs) {
    SimNode& of = node(i);
    of.connection = ++connections_;
    if (at_.size() <= of.connection) at_.resize(of.connection + 1, -1);
    at_[of.connection] = i;
    Join join;
    join.run_id = "scale";
    join.member_id = of.id();
    join.host = of.host;
    join.address = "10.0.0.1";
    join.nproc = kWorkers;
    join.min_nodes = min_nodes_;
    join.max_nodes = size();
    join.max_restarts = 1;
    join.in_memory_recovery = warms_up_;
    if (runs) {
      join.group_rank = of.rank;
      join.first_rank = of.first_rank;
      join.workers = of.workers;
      join.node_count = seats_;
      join.world_size = world_;
    }
    take({.from = of.connection, .generation = runs ? generation_ : 0, .body = std::move(join)});
  }

  void say(int i, decltype(Event::body) body) {
    take({.from = node(i).connection, .generation = generation_, .body = std::move(body)});
  }

  // Carries out all that is due until then.
  void pass(Millis time) {
    const Millis until = now_ + time;
    for (Millis due = next_deadline(state_); due <= until; due = next_deadline(state_)) {
      now_ = std::max(now_, due);
      take({.body = Tick{}});
    }
    now_ = until;
  }

  void forget() {
    State anew;
    state_ = std::move(anew);
    invariants_ = Invariants{};
  }

  // All that were told to stop have: with the workers that wait, or with how these ended.
  void stop_all(int failed_on = -1) {
    for (int i = 0; i < size(); ++i) {
      if (!std::exchange(node(i).told_to_stop, false)) continue;
      Stopped stopped;
      if (warms_up_)
        stopped.workers = node(i).workers;
      else
        for (int local = 0; local < kWorkers; ++local)
          if (i != failed_on || local != 0) stopped.outcomes.push_back(outcome(i, local, true));
      say(i, std::move(stopped));
    }
  }

  WorkerOutcome outcome(int i, int local, bool collateral) {
    WorkerOutcome outcome;
    outcome.rank = node(i).first_rank + local;
    outcome.local_rank = local;
    outcome.group_rank = node(i).rank;
    outcome.host = node(i).host;
    outcome.signal = collateral ? kSigterm : 0;
    outcome.exit_code = collateral ? 0 : 1;
    outcome.collateral = collateral;
    outcome.stderr_tail = {"a line", "another line"};
    return outcome;
  }

  // Prints the counts since the last call.
  void report(const char* what) {
    char line[160];
    std::snprintf(line, sizeof line, "%5d nodes, %-46s %6d events %8d messages %9.2f ms, longest %8.1f us",
                  size(), what, events_, messages_, total_.count() * 1e3, longest_.count() * 1e6);
    MESSAGE(line);
    events_ = messages_ = 0;
    total_ = longest_ = {};
  }
  int messages() const { return messages_; }

  void check_running(std::int64_t generation, int nodes, int world) {
    REQUIRE(state_.phase == Phase::kRunning);
    CHECK(generation_ == generation);
    CHECK(state_.generation == generation);
    CHECK(state_.current.seats.size() == nodes);
    CHECK(world_ == world);
  }

 private:
  void take(const Event& event) {
    const std::int64_t before = state_.generation;
    const test::Stopwatch watch;
    const std::vector<Action> actions = step(state_, event, now_);
    const std::chrono::duration<double> took = watch.wall();
    total_ += took;
    longest_ = std::max(longest_, took);
    ++events_;
    messages_ += static_cast<int>(actions.size());
    const std::string broken = invariants_.check(state_, event, actions, now_, state_.generation != before);
    REQUIRE(broken == "");
    for (const Action& action : actions) hear(action);
  }

  void hear(const Action& action) {
    if (action.to >= at_.size()) return;
    SimNode& to = nodes_[static_cast<std::size_t>(at_[action.to])];
    if (to.connection != action.to) return;
    if (std::holds_alternative<StopOrder>(action.body)) to.told_to_stop = true;
    if (std::holds_alternative<Ended>(action.body)) to.ended = true;
    const auto* assigned = std::get_if<Assigned>(&action.body);
    if (assigned == nullptr) return;
    const Membership& membership = *assigned->membership;
    const Node& seat = membership.nodes[static_cast<std::size_t>(assigned->group_rank)];
    to.rank = assigned->group_rank;
    to.first_rank = seat.first_rank;
    to.workers = seat.nproc;
    generation_ = membership.generation;
    world_ = membership.world_size;
    seats_ = static_cast<int>(membership.nodes.size());
  }

  std::vector<SimNode> nodes_;
  const int min_nodes_;
  const bool warms_up_;
  State state_;
  Invariants invariants_;
  Millis now_ = 0;
  ConnectionId connections_ = 0;
  std::vector<int> at_;  // [connection]: the node that opened it
  std::int64_t generation_ = 0;
  int world_ = 0, seats_ = 0;
  int events_ = 0, messages_ = 0;
  std::chrono::duration<double> total_{}, longest_{};
};

void all_join(Cluster& cluster) {
  for (int i = 0; i < cluster.size(); ++i) cluster.join(i, false);
}

bool all_ended(Cluster& cluster) {
  for (int i = 0; i < cluster.size(); ++i)
    if (!cluster.node(i).ended) return false;
  return true;
}

// Workers outlive generations.
void play_recovery(int nodes) {
  const int world = nodes * kWorkers, some = nodes / 3, lost = nodes / 2;
  Cluster cluster(nodes, 1, true);
  all_join(cluster);
  cluster.check_running(1, nodes, world);
  cluster.report("all join");

  for (int i = 0; i < nodes; ++i) cluster.say(i, Heartbeat{});
  CHECK(cluster.messages() == 0);
  cluster.report("a heartbeat of each");

  cluster.say(some, Failure{cluster.outcome(some, 0, false)});
  CHECK(cluster.messages() == nodes);  // each is told to stop, once
  --cluster.node(some).workers;
  cluster.stop_all();
  cluster.check_running(2, nodes, world - 1);
  cluster.report("a worker dies, the others go on");

  cluster.node(some).workers = kWorkers;
  cluster.say(some, Ready{});
  cluster.stop_all();
  cluster.check_running(3, nodes, world);
  cluster.report("its replacement is taken in");

  cluster.say(lost, StreamBroken{});
  cluster.pass(kReconnectGrace);
  cluster.stop_all();
  cluster.check_running(4, nodes - 1, world - kWorkers);
  cluster.report("a node dies, the others go on");

  ++cluster.node(lost).lives;
  cluster.join(lost, false);
  cluster.say(lost, Ready{});
  cluster.stop_all();
  cluster.check_running(5, nodes, world);
  cluster.report("another agent comes, its workers are taken in");

  cluster.pass(10000);  // nobody was told how many have joined for long
  for (int i = 0; i < nodes; ++i) cluster.say(i, Heartbeat{});
  cluster.report("ten seconds, and a heartbeat of each");
  for (int i = 0; i < nodes; ++i) cluster.say(i, StreamBroken{});
  for (int i = 0; i < nodes; ++i) cluster.join(i, true);
  cluster.check_running(5, nodes, world);
  CHECK(cluster.state().current.seats.away() == 0);
  cluster.report("all connections break, all are back");

  cluster.forget();
  for (int i = 0; i < nodes; ++i) cluster.join(i, true);
  cluster.check_running(5, nodes, world);
  CHECK(cluster.state().current.adopted);
  CHECK(cluster.state().current.seats.away() == 0);
  cluster.report("the coordinator forgets all, all join again");

  // Half of the nodes at once, as with a switch.
  for (int i = 0; i < nodes; i += 2) cluster.say(i, StreamBroken{});
  cluster.pass(kReconnectGrace);
  cluster.stop_all();
  cluster.check_running(6, nodes / 2, world / 2);
  cluster.report("half of the nodes die, the others go on");

  for (int i = 0; i < nodes; i += 2) {
    ++cluster.node(i).lives;
    cluster.node(i).ended = true;
  }
  for (int i = 1; i < nodes; i += 2) cluster.say(i, Finished{});
  CHECK(cluster.state().phase == Phase::kOver);
  CHECK(all_ended(cluster));
  cluster.report("all finish");
}

// All workers are started again.
void play_restart(int nodes) {
  Cluster cluster(nodes, nodes, false);
  all_join(cluster);
  for (const int generation : {1, 2}) {
    cluster.check_running(generation, nodes, nodes * kWorkers);
    cluster.report(generation == 1 ? "all join" : "a worker dies, all start again");
    const int some = nodes / generation - 1;
    cluster.say(some, Failure{cluster.outcome(some, 0, false)});
    cluster.stop_all(some);
    cluster.pass(60000 / kWorkers);
  }
  CHECK(cluster.state().phase == Phase::kOver);
  CHECK(all_ended(cluster));
  CHECK(cluster.state().result->exit_code == 1);
  CHECK(cluster.state().result->more_followers > 0);
  cluster.report("a worker dies, no restart is left");
}

TEST_CASE(
    "16,384 workers on 2,048 nodes, and fewer and more, come, die and come back, and the others go on each "
    "time") {
  for (const int nodes : {512, 2048, 8192}) play_recovery(nodes);
}

TEST_CASE("16,384 workers are all started again, and end with one report") {
  for (const int nodes : {512, 2048, 8192}) play_restart(nodes);
}

}  // namespace
}  // namespace dtrun::rendezvous::scale_test
