// The rate of WaitStatus messages: low enough to be a small part of the cost of joining, but one every few
// seconds.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous::announce_test {
namespace {

// A run that never has enough nodes, and what its members were told.
class Gathering {
 public:
  void join(Millis now) {
    pass(now);
    Join join;
    join.member_id = "m" + std::to_string(++joined_);
    join.address = "10.0.0.1";
    join.min_nodes = join.max_nodes = 1 << 16;
    join.heartbeat_timeout = 600000;
    heard_at_[joined_] = now;
    note(step(state_, {.from = joined_, .body = join}, now), now);
  }

  void pass(Millis until) {
    while (next_deadline(state_) <= until) {
      const Millis due = next_deadline(state_);
      note(step(state_, {.body = Tick{}}, due), due);
    }
  }

  ConnectionId joined_ = 0;
  std::vector<int> counts_;  // of every Waiting, in the order in which they were sent
  Millis longest_silence_ = 0;
  Millis last_said_ = 0;

 private:
  void note(const std::vector<Action>& actions, Millis now) {
    for (const Action& action : actions) {
      const auto* waiting = std::get_if<WaitStatus>(&action.body);
      if (waiting == nullptr) continue;
      counts_.push_back(waiting->joined);
      longest_silence_ = std::max(longest_silence_, now - heard_at_[action.to]);
      heard_at_[action.to] = last_said_ = now;
    }
  }

  State state_;
  std::map<ConnectionId, Millis> heard_at_;
};

}  // namespace

TEST_CASE("ten thousand agents that join in a rush are told the count once it is over") {
  constexpr int kAgents = 10000;
  Gathering run;
  for (int i = 0; i < kAgents; ++i) run.join(i / 7);
  CHECK(run.counts_ == std::vector<int>{1});
  run.pass(10000);
  REQUIRE(run.counts_.size() == 1 + kAgents);
  CHECK(run.counts_.back() == kAgents);
}

TEST_CASE("however agents keep joining, everyone who waits hears of it every 10 s, few agents every 5 s") {
  Gathering many, few;
  for (int i = 0; i < 20000; ++i) many.join(2 * i);
  CHECK(many.longest_silence_ <= 10000);
  CHECK(many.counts_.size() < 2 * many.joined_);
  for (int i = 0; i < 4000; ++i) few.join(10 * i);
  CHECK(few.longest_silence_ <= 5000);
}

TEST_CASE("a count that stays the same is said again every 5 s") {
  Gathering run;
  run.join(0);
  run.pass(4999);
  CHECK(run.counts_ == std::vector<int>{1});
  run.pass(20000);
  CHECK(run.counts_ == std::vector<int>{1, 1, 1, 1, 1});
}

TEST_CASE("between two counts pass 100 ms and one more for each who is told, but never more than 10 s") {
  for (const auto& [agents, gap] : {std::pair{9899, 9999}, std::pair{9900, 10000}, std::pair{12000, 10000}}) {
    Gathering run;
    for (int i = 1; i < agents; ++i) run.join(0);
    run.pass(20000);  // all were told, 10 s ago at the latest
    const Millis told = run.last_said_;
    run.counts_.clear();
    run.join(std::max<Millis>(20000, told + 1));
    run.pass(told + gap - 1);
    CHECK(run.counts_.empty());
    run.pass(told + gap);
    CHECK(run.counts_.size() == static_cast<std::size_t>(agents));
  }
}

TEST_CASE("agents that join one after the other are each told at once") {
  Gathering run;
  for (int i = 0; i < 4; ++i) run.join(1000 * i);
  CHECK(run.counts_ == std::vector<int>{1, 2, 2, 3, 3, 3, 4, 4, 4, 4});
}

}  // namespace dtrun::rendezvous::announce_test
