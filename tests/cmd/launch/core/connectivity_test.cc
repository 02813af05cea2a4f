// Connectivity between hosts, and its consequences for a launch.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "cmd/launch/core/launch.h"
#include "proto/core/exit_codes.h"
#include "tests/cmd/launch/core/scenario.h"

namespace dtrun::cmd::connectivity_test {
namespace {

TEST_CASE("a host that reaches no address of the first is told of with each reason") {
  Scenario s({"a", "b"});
  s.on(event::Begin{});
  s.plan(0);
  s.plan(1);
  s.on(event::Seen{.host = 1, .results = {{.why_not = {"10.0.0.0: refused", "192.168.0.1: no answer"}}}});
  CHECK(s.said().find(
            "b: reaches no address of a on port 20001 (10.0.0.0: refused, 192.168.0.1: no answer)") == 0);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("the first host's own address is the one that most others reach") {
  Scenario s({"a", "b", "c", "d"});
  s.on(event::Begin{});
  for (int i = 0; i < 4; ++i) s.plan(i);
  s.see(1, "10.0.0.0");
  s.see(2, "192.168.0.1");
  s.see(3, "192.168.0.1");
  s.reach_all();
  s.begun();
  const auto begun = s.all<action::TellBegin>();
  REQUIRE(begun.size() == 4);
  CHECK(begun[0].address == "192.168.0.1");
  CHECK(begun[1].address == "10.0.0.0");
}

TEST_CASE("each host tries the others where their workers will be") {
  Scenario s({"a", "b", "c"});
  s.place_all();
  const auto asked = s.all<action::AskToLook>();
  REQUIRE(asked.size() == 5);
  std::map<std::pair<int, int>, std::vector<std::string>> tried;
  for (const auto& one : asked)
    for (const auto& at : one.at) tried[{one.host, at.host}] = at.addresses;
  CHECK(tried.size() == 6);
  CHECK(tried[{0, 1}] == std::vector<std::string>{"10.1.0.1"});  // b's own on its way to a
  CHECK(tried[{1, 0}] == std::vector<std::string>{"10.0.0.0"});  // by which a was reached
  CHECK(tried[{1, 2}] == std::vector<std::string>{"10.1.0.2"});
}

TEST_CASE("the coordinator may be on the first of three hosts that reach each other") {
  // Each as the others reach it.
  const auto ways = [](const action::TellBegin& begin) {
    std::string text;
    for (const auto& at : begin.may_lead) text += std::to_string(at.host) + "=" + at.addresses.front() + " ";
    return text;
  };
  SUBCASE("all do") {
    Scenario s({"a", "b", "c", "d"});
    s.run_all();
    const auto begun = s.all<action::TellBegin>();
    REQUIRE(begun.size() == 4);
    for (const auto& one : begun) CHECK(ways(one) == "0=10.0.0.0 1=10.1.0.1 2=10.1.0.2 ");
  }
  SUBCASE("two do not, which is no reason for a program not to run") {
    Scenario s({"a", "b", "c", "d"}, 4, 4, Purpose::kRun, false);
    s.place_all();
    s.reach(2, {1});
    s.reach_all();
    CHECK(ways(s.all<action::TellBegin>().at(0)) == "0=10.0.0.0 1=10.1.0.1 3=10.1.0.3 ");
  }
  SUBCASE("of two nobody could tell whether the other is lost") {
    Scenario s({"a", "b"});
    s.run_all();
    CHECK(ways(s.all<action::TellBegin>().at(1)).empty());
  }
}

TEST_CASE("of many hosts each tries those behind it in a ring") {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("h" + std::to_string(i));
  Scenario s(names);
  s.place_all();
  CHECK(s.at(0).tried.size() == 63);
  CHECK(s.at(99).tried.front() == 0);
  CHECK(s.at(99).tried.back() == 62);
  s.reach_all();
  CHECK(s.all<action::TellBegin>().size() == 1);
}

const std::string kToC = "does not reach c on port 20001 (10.1.0.2: no answer)";

TEST_CASE("two hosts that do not reach each other are told of, and nothing starts") {
  Scenario s({"a", "b", "c", "d"});
  s.place_all();
  s.reach(0);
  s.reach(1, {2});
  s.reach(2);
  CHECK(s.said().empty());  // others may have their own trouble
  s.reach(3, {2});
  CHECK(s.said() == "b, d: " + kToC +
                        ": nodes must reach each other on all ports\n"
                        "c: cannot take part, as it and others do not reach each other\n"
                        "3 of 4 hosts can run the job; nothing was started\n");
  CHECK(s.all<action::TellBegin>().empty());
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("with a range of nodes as few as possible are left out, and never the first") {
  Scenario s({"a", "b", "c", "d"}, 2, 4);
  s.place_all();
  SUBCASE("one is cut off from two") {
    s.reach(1, {0, 2, 3});
    s.reach_all();
    CHECK(s.said().find("b: does not reach c on port 20001 (10.1.0.2: no answer), d on port 20001 (10.1.0.3: "
                        "no answer), a on port 20001 (10.0.0.0: no answer): nodes") == 0);
    CHECK(s.said().find("b: cannot take part") != std::string::npos);
  }
  std::size_t left = 3;
  SUBCASE("the first is") {
    s.reach(0, {1, 2});
    s.reach_all();
    CHECK(s.said().find("b, c: cannot take part") != std::string::npos);
    left = 2;
  }
  s.begun();
  CHECK(s.all<action::TellBegin>().size() == left);
  CHECK(!s.exit_code());
}

TEST_CASE("what is missing to a host that has gone meanwhile is not told") {
  Scenario s({"a", "b", "c"}, 2, 3);
  s.place_all();
  s.reach(1, {2});
  s.lose(2, SshFailure::kOther);
  s.reach(0);
  CHECK(s.said() == "c: the line to it broke while it looked for the other hosts (broken)\n");
  CHECK(s.all<action::TellBegin>().size() == 1);
}

TEST_CASE("any other program is only warned, since it may not need that way") {
  for (const Purpose purpose : {Purpose::kRun, Purpose::kCheck}) {
    Scenario s({"a", "b", "c"}, 0, 0, purpose, false);
    s.place_all();
    s.reach(1, {2});
    s.reach_all();
    CHECK(s.said() == "b: " + kToC + "; a program that connects them would hang\n");
    CHECK(!s.all<action::Say>().front().error);
    if (purpose == Purpose::kCheck) CHECK(s.exit_code() == 0);
    if (purpose == Purpose::kRun) CHECK(s.all<action::TellBegin>().size() == 1);
  }
}

TEST_CASE("many gaps of one host are one line") {
  Scenario s({"a", "b", "c", "d", "e", "f"}, 2, 6);
  s.place_all();
  s.reach(5, {0, 1, 2, 3, 4});
  s.reach_all();
  CHECK(s.said().find(" and 2 more: nodes must") != std::string::npos);
}

}  // namespace
}  // namespace dtrun::cmd::connectivity_test
