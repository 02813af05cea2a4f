#include "rendezvous/core/run/runs.h"

#include <doctest/doctest.h>

#include <csignal>

namespace dtrun::rendezvous::runs_test {
namespace {

Event joins(ConnectionId from, const std::string& run, const std::string& id, std::int64_t generation = 0) {
  Join join;
  join.run_id = run;
  join.member_id = id;
  join.host = "h";
  join.address = "10.0.0.1";
  return {.from = from, .generation = generation, .body = join};
}

template <typename Body>
const Body* heard(const std::vector<Action>& actions, ConnectionId to) {
  for (const Action& action : actions)
    if (const auto* body = std::get_if<Body>(&action.body); body != nullptr && action.to == to) return body;
  return nullptr;
}

}  // namespace

TEST_CASE("runs do not see each other, and one that is over makes room for the next of its name") {
  Runs runs(true);
  CHECK(heard<Assigned>(runs.step(joins(1, "r1", "a"), 0), 1));
  CHECK(heard<Assigned>(runs.step(joins(2, "r2", "b"), 0), 2));
  CHECK(runs.members() == 2);
  const auto end = runs.step({.from = 1, .generation = 1, .body = Finished{}}, 10);
  CHECK(heard<Ended>(end, 1));
  CHECK_FALSE(heard<Ended>(end, 2));
  runs.step({.from = 1, .generation = 1, .body = Leave{}}, 11);
  CHECK(runs.take_ended() == std::vector<std::string>{"r1"});
  CHECK(runs.states().size() == 1);
  const auto again = runs.step(joins(3, "r1", "c"), 20);
  REQUIRE(heard<Assigned>(again, 3));
  CHECK(heard<Assigned>(again, 3)->membership->generation == 1);
}

TEST_CASE("a member of an ended run that comes late hears how it ended, and does not begin it again") {
  Runs runs(true);
  runs.step(joins(1, "r", "a"), 0);
  runs.step({.from = 1, .generation = 1, .body = Finished{}}, 10);
  runs.step({.from = 1, .body = StreamBroken{}}, 11);
  runs.step({.body = Tick{}}, 1000);
  REQUIRE(runs.states().empty());
  const auto late = runs.step(joins(2, "r", "a", 1), 2000);
  REQUIRE(heard<Ended>(late, 2));
  CHECK(heard<Ended>(late, 2)->result->exit_code == 0);
  CHECK(runs.states().empty());
}

TEST_CASE("an ended run is kept for a day, also when the next of its name has ended") {
  Runs runs(true);
  const auto run_once = [&](ConnectionId from, const std::string& id, int exit_code, Millis now) {
    runs.step(joins(from, "r", id), now);
    if (exit_code != 0) {
      WorkerOutcome failed;
      failed.exit_code = exit_code;
      runs.step({.from = from, .generation = 1, .body = Stopped{{failed}}}, now);
    }
    runs.step({.from = from, .generation = 1, .body = Finished{}}, now);
    runs.step({.from = from, .generation = 1, .body = Leave{}}, now);
  };
  run_once(1, "a", 0, 1000);
  run_once(2, "b", 7, 2000);
  REQUIRE(runs.states().empty());
  REQUIRE(runs.ended().size() == 2);
  CHECK(runs.ended()[0]->result->exit_code == 0);
  CHECK(runs.ended()[0]->over_at == 1000);
  CHECK(runs.ended()[1]->result->exit_code == 7);
  runs.step({.body = Tick{}}, 1000 + kKeepEnded);
  REQUIRE(runs.ended().size() == 1);
  CHECK(runs.ended()[0]->result->exit_code == 7);
  CHECK_FALSE(heard<Ended>(runs.step(joins(3, "r", "a", 1), 1001 + kKeepEnded), 3));
  CHECK(heard<Ended>(runs.step(joins(4, "r", "b", 1), 1001 + kKeepEnded), 4));
}

TEST_CASE("who comes for a run that has just ended hears that it waits for the next one") {
  Runs runs(true);
  const auto two_nodes = [](ConnectionId from, const std::string& id) {
    Event event = joins(from, "fin", id);
    std::get<Join>(event.body).min_nodes = std::get<Join>(event.body).max_nodes = 2;
    return event;
  };
  CHECK_FALSE(heard<News>(runs.step(two_nodes(1, "a"), 0), 1));
  runs.step(two_nodes(2, "b"), 0);
  for (ConnectionId from : {1, 2}) runs.step({.from = from, .generation = 1, .body = Finished{}}, 1000);
  for (ConnectionId from : {1, 2}) runs.step({.from = from, .generation = 1, .body = Leave{}}, 1100);
  REQUIRE(runs.newest_ended("fin"));
  const auto late = runs.step(two_nodes(3, "c"), 3000);
  REQUIRE(heard<News>(late, 3));
  CHECK(heard<News>(late, 3)->text == "waiting for the next run fin: the last one ended with exit code 0");
  CHECK(heard<News>(late, 3)->age == 2000);
  CHECK(heard<WaitStatus>(late, 3));
  CHECK_FALSE(heard<News>(runs.step(two_nodes(4, "d"), 4000), 4));  // the run is complete: it begins
}

TEST_CASE("failed runs weigh more: what their workers said last is kept for fewer of them") {
  Runs runs(true);
  constexpr ConnectionId kRuns = 3000;
  for (ConnectionId number = 1; number <= kRuns; ++number) {
    const std::string name = std::to_string(number);
    runs.step(joins(number, name, name), 0);
    WorkerOutcome failed;
    failed.exit_code = 7;
    runs.step({.from = number, .generation = 1, .body = Stopped{{failed}}}, 0);
    runs.step({.from = number, .generation = 1, .body = Leave{}}, 0);
  }
  REQUIRE(runs.states().empty());
  CHECK(runs.ended().size() > 2000);
  CHECK(runs.ended().size() < 2500);
}

TEST_CASE("the ends of runs are kept for the last 20,000 members, and forgotten oldest first") {
  constexpr ConnectionId kKept = 20000;
  Runs runs(true);
  const auto end_of = [&](ConnectionId number) {
    const std::string name = std::to_string(number);
    runs.step(joins(number, "run-" + name, "member-" + name), 0);
    runs.step({.from = number, .generation = 1, .body = Finished{}}, 0);
    runs.step({.from = number, .generation = 1, .body = Leave{}}, 0);
  };
  for (ConnectionId number = 1; number <= kKept; ++number) end_of(number);
  REQUIRE(runs.states().empty());
  CHECK(heard<Ended>(runs.step(joins(kKept + 11, "run-1", "member-1", 1), 1), kKept + 11));
  end_of(kKept + 1);
  CHECK(heard<Ended>(runs.step(joins(kKept + 12, "run-2", "member-2", 1), 1), kKept + 12));
  const auto forgotten = runs.step(joins(kKept + 13, "run-1", "member-1", 1), 1);
  CHECK_FALSE(heard<Ended>(forgotten, kKept + 13));
  CHECK(heard<Assigned>(forgotten, kKept + 13));  // nobody knows that run any more: it begins anew
}

TEST_CASE("who comes for the next run while others still leave the last one begins it once they have") {
  Runs runs(true);
  runs.step(joins(1, "r", "a"), 0);
  runs.step({.from = 1, .generation = 1, .body = Finished{}}, 10);
  REQUIRE(runs.states().at("r").phase == Phase::kOver);
  CHECK(runs.step(joins(2, "r", "gives up"), 11).empty());
  CHECK(runs.step(joins(3, "r", "b"), 11).empty());
  CHECK(runs.step({.from = 2, .body = StreamBroken{}}, 12).empty());
  const auto left = runs.step({.from = 1, .generation = 1, .body = Leave{}}, 13);
  REQUIRE(heard<Assigned>(left, 3));
  CHECK(heard<Assigned>(left, 3)->membership->generation == 1);
  CHECK(left.front().to == 3);
  CHECK(runs.take_ended() == std::vector<std::string>{"r"});
  CHECK(runs.members() == 1);
  CHECK(heard<Ended>(runs.step({.from = 3, .generation = 1, .body = Finished{}}, 20), 3));
}

TEST_CASE("a coordinator that ends with its run answers nobody who comes for the next one") {
  Runs runs(false);
  runs.step(joins(1, "r", "a"), 0);
  runs.step({.from = 1, .generation = 1, .body = Finished{}}, 10);
  CHECK(runs.step(joins(2, "r", "b"), 11).empty());
  CHECK(runs.step(joins(3, "r2", "c"), 11).empty());
  CHECK(runs.members() == 1);
  // An agent that ran in a generation has not come for another run.
  CHECK(heard<Rejected>(runs.step(joins(4, "r", "d", 1), 11), 4));
}

TEST_CASE("a coordinator that an agent hosts serves one run and says so to others") {
  Runs runs(false);
  runs.step(joins(1, "r1", "a"), 0);
  const auto other = runs.step(joins(2, "r2", "b"), 0);
  REQUIRE(heard<Rejected>(other, 2));
  CHECK(heard<Rejected>(other, 2)->reason == Rejected::kOtherRun);
}

TEST_CASE("every run's timers fire, the earliest is the next deadline") {
  Runs runs(true);
  runs.step(joins(1, "r1", "a"), 0);
  runs.step(joins(2, "r2", "b"), 500);
  CHECK(runs.next_deadline() == 14800);  // listens for a moment before it gives the first one up
  CHECK(runs.step({.body = Tick{}}, 14800).empty());
  CHECK(runs.next_deadline() == 15000);
  CHECK(heard<Close>(runs.step({.body = Tick{}}, 15000), 1));
  CHECK(runs.next_deadline() == 15300);
}

namespace {

// A run of three nodes, of which n1 has the coordinator, as another one got to know it.
RunRecord three_nodes() {
  return {.run_id = "r", .generation = 7, .hosts = {"n0", "n1", "n2"}, .leader = "n1"};
}

Event comes_back(ConnectionId from, int rank, bool hosts = false) {
  Event event = joins(from, "r", "m" + std::to_string(rank), 7);
  auto& join = std::get<Join>(event.body);
  join.host = "n" + std::to_string(rank);
  join.group_rank = join.first_rank = rank;
  join.node_count = join.world_size = join.max_nodes = 3;
  join.heartbeat_timeout = 15000;
  join.hosts = hosts;
  return event;
}

std::string stop_of(const std::vector<Action>& actions, ConnectionId to) {
  const auto* order = heard<StopOrder>(actions, to);
  return order != nullptr ? order->reason : "";
}

}  // namespace

TEST_CASE("a run ends with the coordinator's host, unless another one takes over") {
  for (const bool outlives : {false, true}) {
    CAPTURE(outlives);
    Runs runs(false, outlives);
    for (const int rank : {0, 1, 2}) {
      Event event = comes_back(static_cast<ConnectionId>(rank + 1), rank, rank == 1);
      event.generation = 0;
      runs.step(event, 0);
    }
    CHECK(runs.records(0).at(0).leader == "n1");
    const auto left = runs.step({.from = 2, .generation = 1, .body = Leave{.signal = SIGTERM}}, 1000);
    CHECK((heard<Ended>(left, 1) == nullptr) == outlives);
  }
}

TEST_CASE("who had the coordinator, and is lost with it, is named with who took over") {
  Runs runs(false, true);
  runs.restore({three_nodes()}, 0);
  CHECK(heard<JoinAck>(runs.step(comes_back(1, 0, true), 0), 1)->resumed);
  runs.step(comes_back(2, 2), 0);
  const std::string expected = "n1, which had the coordinator, is lost: n0 took over";
  const auto lost = runs.step({.from = 1, .generation = 7, .body = Heartbeat{}}, 15000);
  CHECK(stop_of(lost, 1) == expected);
  REQUIRE(heard<News>(lost, 2));
  CHECK(heard<News>(lost, 2)->text == expected);
  CHECK(heard<News>(lost, 2)->host == "n1");
  CHECK(runs.records(15000).at(0).leader == "n0");
}

TEST_CASE("of the others that stay away a new coordinator says their names") {
  Runs runs(false);
  runs.restore({three_nodes()}, 0);
  runs.step(comes_back(1, 1), 0);
  runs.step(comes_back(2, 0, true), 0);
  CHECK(stop_of(runs.step({.from = 1, .generation = 7, .body = Heartbeat{}}, 15000), 1) ==
        "n2 did not come back after the restart of the coordinator");
  SUBCASE("but for names of another generation") {
    Runs other(false);
    RunRecord old = three_nodes();
    old.generation = 6;
    other.restore({old}, 0);
    other.step(comes_back(1, 1), 0);
    other.step(comes_back(2, 0, true), 0);
    CHECK(stop_of(other.step({.from = 1, .generation = 7, .body = Heartbeat{}}, 15000), 1) ==
          "node rank 2 did not come back after the restart of the coordinator");
  }
}

TEST_CASE("a node whose leave an earlier coordinator saw is not waited for, and gone until it is back") {
  Runs before(false);
  for (const int rank : {0, 1, 2}) {
    Event event = comes_back(static_cast<ConnectionId>(rank + 1), rank, rank == 1);
    event.generation = 0;
    std::get<Join>(event.body).min_nodes = 3;
    before.step(event, 0);
  }
  before.step({.from = 2, .generation = 1, .body = Leave{.signal = 0, .soon = true}}, 900);
  before.step({.from = 3, .generation = 1, .body = Leave{.signal = 15}}, 1000);
  std::vector<RunRecord> left = before.records(3000);
  REQUIRE(left.at(0).missing.size() == 1);
  CHECK(left[0].hosts == std::vector<std::string>{"n0", "n1", "n2"});
  CHECK(left[0].leader == "n1");
  CHECK(left[0].missing[0].age == 2000);

  const auto of_first = [](ConnectionId from, int rank, bool hosts) {
    Event event = comes_back(from, rank, hosts);
    event.generation = 1;
    std::get<Join>(event.body).min_nodes = 3;
    return event;
  };
  Runs after(false);
  after.restore(left, 0);
  CHECK(stop_of(after.step(of_first(1, 0, true), 1000), 1) == "n2 left (told to by SIGTERM)");
  after.step(of_first(2, 1, false), 1000);
  after.step({.from = 1, .generation = 1, .body = Stopped{}}, 1100);
  const auto waits = after.step({.from = 2, .generation = 1, .body = Stopped{}}, 1200);
  REQUIRE(heard<WaitStatus>(waits, 1));
  REQUIRE(heard<WaitStatus>(waits, 1)->missing.size() == 1);
  const News& missing = heard<WaitStatus>(waits, 1)->missing[0];
  CHECK(missing.host == "n2");
  CHECK(missing.kind == News::kLeft);
  CHECK(missing.age == 3200);

  SUBCASE("which a third one hears of") { CHECK(same_facts(after.records(1200).at(0), left[0]) == false); }
  Event again = comes_back(4, 2);
  again.generation = 0;
  auto& join = std::get<Join>(again.body);
  join.min_nodes = 3;
  join.member_id = "new";
  const auto taken = after.step(again, 2000);
  REQUIRE(heard<News>(taken, 1));
  CHECK(heard<News>(taken, 1)->text == "n2 is back");
  CHECK(heard<Assigned>(taken, 4));
  CHECK(after.records(2000).at(0).missing.empty());
}

TEST_CASE("of two agents of one host, of which one left, both are waited for") {
  Runs runs(false);
  RunRecord record = three_nodes();
  record.hosts = {"n0", "n1", "n1"};
  record.missing = {{.kind = News::kLeft, .host = "n1", .text = "n1 left", .age = 0}};
  runs.restore({record}, 0);
  CHECK(stop_of(runs.step(comes_back(1, 0, true), 0), 1).empty());
}

TEST_CASE("what a coordinator inherited it hands on, a run that nobody came back to too") {
  Runs runs(false);
  RunRecord record = three_nodes();
  record.missing = {{.kind = News::kLeft, .host = "n2", .text = "n2 left", .age = 10}};
  record.changes = 3;
  runs.restore({record}, 0);
  CHECK(same_facts(runs.records(500).at(0), record));
  CHECK(runs.records(500).at(0).missing[0].age == 510);
  runs.step(comes_back(1, 0, true), 600);
  const RunRecord own = runs.records(600).at(0);
  CHECK(own.hosts == record.hosts);
  CHECK(own.leader == "n0");
  CHECK(own.changes == 3);
  CHECK(own.missing[0].age == 610);
}

}  // namespace dtrun::rendezvous::runs_test
