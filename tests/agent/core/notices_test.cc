// What people are told while they wait.
#include "agent/core/notices.h"

#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/core/scenario.h"

using namespace dtrun::agent;
using namespace dtrun::agent::test;

TEST_CASE("who waits for other nodes at an address of this machine alone is told so") {
  for (const auto& [endpoint, told] :
       std::vector<std::pair<std::string, bool>>{{"localhost:29400", true},
                                                 {"127.0.0.1:29400", true},
                                                 {"[::1]:29400", true},
                                                 {"localhost.lan:29400", false}}) {
    Scenario s(builtin());
    s.state.settings.endpoint = endpoint;
    s.happens(event::Connected{});
    s.happens(event::Welcome{"10.0.0.2", 60000});
    s.happens(waiting(1, 2));
    CHECK((s.printed.back().find("only agents of this machine can join") != std::string::npos) == told);
  }
}

TEST_CASE("what happens to another node is said at once, with what it does to the workers here") {
  Scenario s(external(1));
  s.joins();
  s.happens(event::StopOrder{1, "a left (told to by SIGINT)"});
  CHECK(s.happens(left("a")) == Trace{"news: a left (told to by SIGINT): stopping 1 worker"});
  s.exits(0, 0, SIGTERM);
  CHECK(s.happens(left("c", 12000)) == Trace{"news: c left (told to by SIGINT), 12 s ago"});
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"leave 15", "end 143"});
  CHECK(s.happens(left("d")) == Trace{});
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

TEST_CASE("who waits is told who is missing, since when, and what is left by the coordinator's clock") {
  Scenario s(external(1));
  s.happens(event::Connected{});
  s.happens(event::Welcome{"10.0.0.2", 60000});
  event::Waiting wait = waiting(1, 2);
  wait.left = 588000;
  wait.missing = {left("node1", 12000)};
  s.happens(wait);
  CHECK(s.printed.back() ==
        "joined 1 of 2 nodes at 10.0.0.1:29400, this node as 10.0.0.2; missing: node1 (left 12 s ago); 588 s "
        "left");
  s.passes(5000);
  CHECK(s.printed.back().ends_with("missing: node1 (left 17 s ago); 583 s left"));
}
