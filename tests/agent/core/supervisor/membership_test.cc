// Nodes that come and go, as this node's agent takes it: the agent's messages to people, and the way in which
// a host leaves.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "agent/core/supervisor/notices.h"
#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::membership_test {

TEST_CASE("what happens to another node is said at once, with what it does to the workers here") {
  Scenario s(external(1));
  s.joins();
  s.happens(event::StopOrder{1, "a left (told to by SIGINT)"});
  CHECK(s.happens(left("a")) == Trace{"news: a left (told to by SIGINT): stopping 1 worker"});
  s.exits(0, 0, SIGTERM);
  CHECK(s.happens(left("a")) == Trace{"news: a left (told to by SIGINT): stopped 1 worker"});
  CHECK(s.happens(left("c", 12000)) == Trace{"news: c left (told to by SIGINT), 12 s ago"});
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"leave 15", "end 143"});
  CHECK(s.happens(left("d")) == Trace{});
}

TEST_CASE("the others hear of a node that is told to stop, if its workers take their time") {
  Scenario s(external(1));
  s.joins();
  s.happens(event::Signal{SIGTERM});
  s.now = 1000;
  CHECK(s.happens(event::Tick{}) == Trace{"heartbeat", "leave soon 15"});
  s.now = 2000;
  CHECK(s.happens(event::Tick{}) == Trace{"heartbeat"});
  Scenario swift(external(1));
  swift.joins();
  swift.happens(event::Signal{SIGTERM});
  swift.exits(0, 0, SIGTERM);
  swift.now = 1000;
  CHECK(swift.happens(event::Tick{}) == Trace{});
  Scenario alone(external(1));
  alone.joins(1, 0, 1);
  alone.happens(event::Signal{SIGTERM});
  alone.now = 1000;
  CHECK(alone.happens(event::Tick{}) == Trace{"heartbeat"});
}

TEST_CASE("a new generation does not repeat what was said when a node left") {
  Scenario s(external(1));
  s.joins();
  s.happens(event::StopOrder{1, "a left (told to by SIGINT)"});
  s.happens(left("a"));
  s.exits(0, 0, SIGTERM);
  s.assigned(2, 0, "a left (told to by SIGINT)", 1);
  CHECK(s.printed.back() == "going on with 3 workers on 1 node");
}

TEST_CASE("work that ended well is not done a second time without a word") {
  Scenario s(external(2));
  s.joins();
  s.exits(0, 0);
  s.exits(1, 0);
  s.happens(event::StopOrder{1, "a lost its connection"});
  s.assigned(2, 0, "a lost its connection", 1);
  REQUIRE(s.printed.size() == 2);
  CHECK(s.printed[0] == "ranks 2-3 had ended with 0 and run again: a lost its connection");
  CHECK(s.printed[1] == "going on with 4 workers on 1 node");
  Scenario restart(external(1));
  restart.joins();
  restart.exits(0, 0);
  restart.assigned(2, 1, "rank 0 on a failed, restart 1 of 1");
  CHECK(restart.printed == std::vector<std::string>{
                               "rank 2 had ended with 0 and runs again: rank 0 on a failed, restart 1 of 1"});
}

TEST_CASE("who waits is told who is missing, since when, and what is left by the coordinator's clock") {
  Scenario s(external(1));
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.2", 60000});
  CHECK(standing_notice(s.state, s.now).empty());
  event::WaitStatus wait = waiting(1, 2);
  wait.left = 588000;
  wait.missing = {left("node1", 12000)};
  s.happens(wait);
  CHECK(s.printed.back() ==
        "joined 1 of 2 nodes at 10.0.0.1:29400, this node as 10.0.0.2; missing: node1 (left 12 s ago); "
        "588 s left");
  CHECK(standing_notice(s.state, 2000) ==
        "waiting: joined 1 of 2 nodes; 586 s left; missing: node1 (left 14 s ago)");
  s.passes(5000);
  CHECK(s.printed.back() == standing_notice(s.state, 5000));
  s.assigned(1);
  CHECK(standing_notice(s.state, s.now).empty());
}

TEST_CASE("a node without a place is told what it waits for") {
  const auto told = [](int joined, int away) {
    Scenario s(external(1));
    s.happens(event::Connected{});
    s.happens(event::JoinAck{"10.0.0.2", 60000});
    event::WaitStatus wait = waiting(joined, 2);
    wait.left = 0;
    wait.run_goes_on = true;
    wait.away = away;
    s.happens(wait);
    CHECK(s.printed.back() == standing_notice(s.state, s.now));
    return standing_notice(s.state, s.now);
  };
  CHECK(told(3, 0) == "all 2 places of the run are taken; this node waits for one");
  CHECK(told(2, 1) == "1 node of the run is out of touch; this node waits for a place");
  CHECK(told(2, 0) == "some nodes of the run have finished already; this node waits for a place");
}

TEST_CASE("only a repetition may be shown in place of the line before") {
  Scenario s(external(1));
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.2", 60000});
  const auto first = decide(s.state, waiting(1, 2), 0);
  CHECK_FALSE(std::get<action::Print>(first.at(0)).again);
  const auto second = decide(s.state, event::Tick{}, 5000);
  CHECK(std::get<action::Print>(second.at(0)).again);
}

TEST_CASE(
    "a host that is told to end waits until the others know, but not long, and not for a second signal") {
  const auto leaving = [] {
    Scenario s(external(1));
    s.hosting = true;
    s.joins();
    s.happens(event::Signal{SIGINT});
    CHECK(s.exits(0, 0, SIGINT) == Trace{"leave 2", "await members"});
    CHECK(s.happens(job_end(69)) == Trace{});  // its own coordinator's last word
    return s;
  };
  Scenario told = leaving();
  CHECK(told.happens(event::MembersLeft{}) == Trace{"end 130"});
  Scenario silent = leaving();
  CHECK(silent.passes(999) == Trace{});
  CHECK(silent.passes(1000) == Trace{"heartbeat", "end 130"});
  Scenario impatient = leaving();
  impatient.now = 300;
  CHECK(impatient.happens(event::Signal{SIGINT}) == Trace{"drop output", "end 130"});
  Scenario guest(external(1));
  guest.joins();
  guest.happens(event::Signal{SIGINT});
  CHECK(guest.exits(0, 0, SIGINT) == Trace{"leave 2", "end 130"});
}

}  // namespace dtrun::agent::test::membership_test
