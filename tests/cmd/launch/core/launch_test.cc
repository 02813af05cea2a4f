// The course of a launch on many hosts: every host that cannot take part is reported before anything starts.
#include "cmd/launch/core/launch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cmd/launch/core/repeats.h"
#include "proto/core/exit_codes.h"
#include "tests/cmd/launch/core/scenario.h"

namespace dtrun::cmd::launch_test {
namespace {

TEST_CASE("all hosts are called, planned, seen, and begin together; the first one's end is the job's") {
  Scenario s({"a", "b", "c"});
  s.on(event::Begin{});
  CHECK(s.all<action::Dial>().size() == 3);
  s.plan(1);
  s.plan(0);
  CHECK(s.all<action::AskToLook>().empty());  // c has not answered
  s.plan(2);
  CHECK(s.all<action::SendJob>().size() == 3);
  REQUIRE(s.all<action::AskToLook>().size() == 2);
  s.see(1);
  CHECK(s.all<action::AskToLook>().size() == 2);  // the address of c is not known
  s.see(2);
  CHECK(s.all<action::AskToLook>().size() == 5);
  s.reach(0);
  s.reach(2);
  CHECK(s.all<action::TellBegin>().empty());
  s.reach(1);
  REQUIRE(s.all<action::TellBegin>().size() == 1);  // the first holds the port
  s.begun();
  const auto begun = s.all<action::TellBegin>();
  REQUIRE(begun.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(begun[static_cast<std::size_t>(i)].first == 0);
    CHECK(begun[static_cast<std::size_t>(i)].node_rank == i);
    CHECK(begun[static_cast<std::size_t>(i)].address == "10.0.0.0");
  }
  s.end(1, 0);
  s.end(2, 1);
  CHECK(!s.exit_code());
  s.end(0, 3);
  CHECK(s.exit_code() == 3);
}

TEST_CASE("a first host that is lost before it has begun takes the others along, which have not begun") {
  Scenario s({"a", "b", "c"}, 1, 3);
  s.place_all();
  s.reach_all();
  s.lose(0, SshFailure::kOther, "broken");
  CHECK(s.all<action::TellBegin>().size() == 1);
  CHECK(s.said().find("2 hosts are left, the job needs a: stopping it") != std::string::npos);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("Ctrl-C between the first host's begin and the others'") {
  Scenario s({"a", "b"});
  s.on(event::Begin{});
  s.plan(0);
  s.plan(1);
  s.see(1);
  s.reach_all();
  s.on(event::Told{2});
  CHECK(s.all<action::PassSignal>().size() == 1);
  s.begun();
  CHECK(s.all<action::TellBegin>().size() == 1);
  s.end(0, 130);
  CHECK(s.exit_code() == 130);
}

TEST_CASE("one host alone needs nobody to see it") {
  Scenario s({"a"});
  s.on(event::Begin{});
  s.plan(0);
  CHECK(s.all<action::TellBegin>().size() == 1);
}

TEST_CASE(
    "nothing starts where a host cannot take part, and all such hosts are named at once, alike ones "
    "together") {
  Scenario s({"a", "b", "c", "d"});
  s.on(event::Begin{});
  s.lose(1, SshFailure::kPermission, "Permission denied (publickey).", "see ssh-add -l");
  s.plan(0);
  s.lose(3, SshFailure::kPermission, "Permission denied (publickey).", "see ssh-add -l");
  CHECK(s.said().empty());  // c may have its own trouble
  s.answer(2);
  s.on(event::Refused{.host = 2, .exit_code = kExitNoInput, .why = "/data: No such file or directory"});
  CHECK(s.said() ==
        "b, d: Permission denied (publickey).; see ssh-add -l\nc: /data: No such file or directory\n"
        "1 of 4 hosts can run the job; nothing was started\n");
  CHECK(s.all<action::TellBegin>().empty());
  CHECK(s.exit_code() == kExitUnavailable);  // the first host's in order
}

TEST_CASE("with a range of nodes the others go on, and the failed host is named") {
  Scenario s({"a", "b", "c"}, 2, 3);
  s.on(event::Begin{});
  s.lose(0, SshFailure::kUnreachable, "Connection timed out");
  s.plan(1);
  s.plan(2);
  s.see(2);
  s.reach_all();
  s.begun(1);
  const auto begun = s.all<action::TellBegin>();
  REQUIRE(begun.size() == 2);
  CHECK(begun[0].first == 1);
  CHECK(begun[0].node_rank == 0);
  CHECK(s.said() == "a: Connection timed out\n");
}

TEST_CASE("more hosts than places leave the places open") {
  Scenario s({"a", "b", "c"}, 2, 2);
  s.run_all();
  REQUIRE(s.all<action::TellBegin>().size() == 3);
  for (const auto& one : s.all<action::TellBegin>()) CHECK(!one.node_rank);
}

TEST_CASE("an agent that answers what it was not asked is no part of the job") {
  Scenario s({"a", "b"});
  s.place_all();
  s.on(event::Seen{.host = 1, .results = {}});
  s.reach(0);
  CHECK(s.exit_code() == kExitSoftware);
}

TEST_CASE("a host without dtrun, or with another build, gets it once") {
  for (const bool none : {true, false}) {
    CAPTURE(none);
    Scenario s({"a"});
    s.on(event::Begin{});
    if (none) s.lose(0, SshFailure::kNoDtrun);
    if (!none) s.on(event::Answered{.host = 0, .same_build = false});
    REQUIRE(s.all<action::Dial>().size() == 2);
    CHECK(s.all<action::Dial>()[1].with_files);
    Scenario again = s;
    s.plan(0);
    CHECK(s.all<action::TellBegin>().size() == 1);
    again.lose(0, SshFailure::kNoDtrun, "not found");
    CHECK(again.all<action::Dial>().size() == 2);
    CHECK(again.exit_code() == kExitUnavailable);
  }
}

TEST_CASE("another build than the one that was brought is not brought again") {
  Scenario s({"a"});
  s.on(event::Begin{});
  s.lose(0, SshFailure::kNoDtrun);
  s.on(event::Answered{.host = 0, .same_build = false});
  CHECK(s.all<action::Dial>().size() == 2);
  CHECK(s.exit_code() == kExitSoftware);
}

TEST_CASE("a host without room for dtrun is told of as a folder that cannot be made") {
  Scenario s({"a"});
  s.on(event::Begin{});
  s.lose(0, SshFailure::kNoDtrun);
  s.lose(0, SshFailure::kNoPlace, "cannot bring dtrun to /home/ada/.cache/dtrun", "make room");
  CHECK(s.said() == "a: cannot bring dtrun to /home/ada/.cache/dtrun; make room\n");
  CHECK(s.exit_code() == kExitCannotCreate);
}

TEST_CASE("what a host says of its end is no success where it is no exit code") {
  for (const int told : {-1, 0, 1, 255, 256, 512}) {
    CAPTURE(told);
    Scenario refused({"a"}), ended({"a"});
    refused.on(event::Begin{});
    refused.answer(0);
    refused.on(event::Refused{.host = 0, .exit_code = told, .why = "no"});
    CHECK(refused.exit_code() == (told >= 1 && told <= 255 ? told : kExitSoftware));
    ended.run_all();
    ended.end(0, told);
    CHECK(ended.exit_code() == (told >= 0 && told <= 255 ? told : kExitSoftware));
  }
}

TEST_CASE(
    "a host that falls silent while it is asked is told of once, and what it did when its line breaks") {
  Scenario s({"a", "b", "c", "d"});
  s.on(event::Begin{});
  s.answer(1);
  s.plan(2);
  s.on(event::Quiet{{0, 1, 2}});
  CHECK(s.said() == "b, c: no answer any more: the host or the way to it may be lost\n");
  s.on(event::Quiet{{1, 2}});
  CHECK(s.all<action::Say>().size() == 1);
  s.lose(1, SshFailure::kUnreachable, "Connection timed out", "look whether sshd listens");
  s.lose(2, SshFailure::kUnreachable, "Connection timed out", "look whether sshd listens");
  s.lose(0, SshFailure::kUnreachable, "No route to host", "look whether sshd listens");
  s.lose(3, SshFailure::kUnreachable, "No route to host", "look whether sshd listens");
  CHECK(s.said().find("b: the line to it broke while it looked at its files (Connection timed out)\n") !=
        std::string::npos);
  CHECK(
      s.said().find("c: the line to it broke while it waited for the other hosts (Connection timed out)\n") !=
      std::string::npos);
  CHECK(s.said().find("a, d: No route to host; look whether sshd listens\n") != std::string::npos);
}

TEST_CASE(
    "ssh has its time to connect, then a host that is called and silent is told of; one that gets files is "
    "not") {
  Scenario s({"a", "b"});
  s.on(event::Begin{});
  s.lose(1, SshFailure::kNoDtrun);
  s.now += s.state.settings.connect_time();
  s.on(event::Quiet{{0, 1}});
  CHECK(s.said().empty());
  s.now += 2'000;
  s.on(event::Quiet{{0, 1}});
  CHECK(s.said() == "a: no answer yet, is it up? It has 30 s\n");
  s.answer(0);
  s.on(event::Quiet{{0}});
  CHECK(s.said().find("a: no answer any more") != std::string::npos);
}

TEST_CASE("a job that runs may be quiet") {
  Scenario s({"a"});
  s.run_all();
  s.on(event::Quiet{{0}});
  CHECK(s.said().empty());
}

TEST_CASE("a refused login is tried again later") {
  Scenario s({"a"});
  s.on(event::Begin{});
  s.lose(0, SshFailure::kRefusedLogin, "Connection closed by remote host");
  CHECK(s.all<action::Dial>().size() == 1);
  CHECK(!s.exit_code());
  REQUIRE(next_deadline(s.state));
  s.now = *next_deadline(s.state);
  s.on(event::Tick{});
  CHECK(s.all<action::Dial>().size() == 2);
}

TEST_CASE("a host that does not answer is not waited for for ever") {
  Scenario s({"a"});
  s.on(event::Begin{});
  CHECK(next_deadline(s.state) == s.now + s.state.settings.answer_time);
  s.now += s.state.settings.answer_time;
  s.on(event::Tick{});
  CHECK(s.said().find("no answer within 30 s") != std::string::npos);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("a host whose shell was heard is up, and is not waited for ever either") {
  Scenario s({"a"});
  s.state.settings.logins = {"ssh -p 2222 -o BatchMode=yes ada@a true"};
  s.state.settings.answer_time = 60'000;
  s.on(event::Begin{});
  s.on(event::Heard{.host = 0, .line = "Last login: Mon"});
  s.now += 22'000;
  s.on(event::Quiet{{0}});
  CHECK(s.said() == "a: its shell has started no agent yet. It has 60 s\n");
  CHECK(next_deadline(s.state) == s.now + 38'000);
  s.now += 38'000;
  s.on(event::Tick{});
  CHECK(
      s.said().find("logged in, but its shell started no agent within 60 s (it printed: Last login: Mon)") !=
      std::string::npos);
  CHECK(s.said().find("try the same by hand: ssh -p 2222 -o BatchMode=yes ada@a true") != std::string::npos);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("Ctrl-C: before the start it is the end, then a message, the third time the line is cut") {
  Scenario s({"a", "b"});
  SUBCASE("before") {
    s.on(event::Begin{});
    s.plan(0);
    s.on(event::Told{2});
    CHECK(s.exit_code() == 130);
    CHECK(s.all<action::PassSignal>().empty());
  }
  SUBCASE("running") {
    s.run_all();
    s.on(event::Told{2});
    CHECK(s.all<action::PassSignal>().size() == 2);
    CHECK(!s.exit_code());
    s.on(event::Told{2});
    CHECK(s.all<action::PassSignal>().size() == 4);
    CHECK(!s.exit_code());
    SUBCASE("agents end") {
      s.end(0, 130);
      s.end(1, 130);
      CHECK(s.exit_code() == 130);
    }
    SUBCASE("one of them before it reaches the first") {
      s.end(1, 130);
      s.end(0, kExitUnavailable);
      CHECK(s.exit_code() == 130);
    }
    SUBCASE("too late") {
      s.end(0, 0);
      s.end(1, 0);
      CHECK(s.exit_code() == 0);
    }
    SUBCASE("a third time") {
      s.on(event::Told{15});
      CHECK(s.exit_code() == 130);
    }
  }
}

TEST_CASE("a line that breaks while the job runs is told; where enough are left, the others' end counts") {
  Scenario s({"a", "b", "c"}, 2);
  s.run_all();
  s.lose(0, SshFailure::kOther, "client_loop: send disconnect: Broken pipe");
  CHECK(s.said().find("a: the line to it is gone (client_loop: send disconnect: Broken pipe)") == 0);
  CHECK(!s.exit_code());
  CHECK(s.all<action::PassSignal>().empty());
  s.end(1, 3);
  s.end(2, 3);
  CHECK(s.exit_code() == 3);
}

TEST_CASE("where too few hosts are left, the others are stopped, since a lost one does not come back") {
  Scenario s({"a", "b", "c"});
  s.run_all();
  s.lose(0, SshFailure::kOther);
  CHECK(s.said().find("2 hosts are left, the job needs 3: stopping it") != std::string::npos);
  CHECK(s.all<action::PassSignal>().size() == 2);
  CHECK(s.all<action::PassSignal>().front().signal == 15);
  s.lose(1, SshFailure::kOther);
  CHECK(s.all<action::PassSignal>().size() == 2);  // two in a row would mean: at once
  s.end(2, 143);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("a line that breaks while the job ends stops nobody") {
  Scenario s({"a", "b", "c"});
  s.run_all();
  SUBCASE("by itself") { s.end(0, 0); }
  SUBCASE("by a signal") { s.on(event::Told{2}); }
  const auto before = s.all<action::PassSignal>().size();
  s.lose(2, SshFailure::kOther);
  CHECK(s.all<action::PassSignal>().size() == before);
}

TEST_CASE("all lines broken: unavailable") {
  Scenario s({"a", "b"});
  s.run_all();
  s.lose(0, SshFailure::kOther);
  s.lose(1, SshFailure::kOther);
  CHECK(s.exit_code() == kExitUnavailable);
}

TEST_CASE("--check starts nothing and tells of all hosts") {
  Scenario s({"a", "b", "c"}, 1, 3, Purpose::kCheck);
  s.on(event::Begin{});
  s.plan(0);
  s.plan(1);
  s.lose(2, SshFailure::kUnknownHost, "Could not resolve hostname c");
  s.see(1);
  s.reach_all();
  REQUIRE(s.all<action::TellCheck>().size() == 1);
  CHECK(s.all<action::TellCheck>().front().ready == 2);
  CHECK(s.all<action::TellBegin>().empty());
  CHECK(s.exit_code() == kExitUnavailable);
}

// For any events in any order: nobody begins before all have been asked, nobody begins twice unless it was
// lost in between, and the end comes once.
TEST_CASE("random events keep the invariants") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const int hosts = 1 + static_cast<int>(random() % 5);
    std::vector<std::string> names;
    for (int i = 0; i < hosts; ++i) names.push_back("h" + std::to_string(i));
    Scenario s(names, 1 + static_cast<int>(random() % static_cast<unsigned>(hosts)), hosts);
    s.on(event::Begin{});
    for (int step = 0; step < 60; ++step) {
      const int host = static_cast<int>(random() % static_cast<unsigned>(hosts));
      s.now += random() % 2000;
      switch (random() % 13) {
        case 0:
          s.on(event::Answered{.host = host, .same_build = random() % 4 != 0});
          break;
        case 1:
        case 2:
          s.plan(host);
          break;
        case 3:
        case 4:
          if (s.at(host).phase == HostPhase::kTrying)
            s.reach(host);
          else
            s.see(host);
          break;
        case 5:
          if (s.at(host).phase == HostPhase::kTrying)
            s.reach(host, {static_cast<int>(random() % static_cast<unsigned>(hosts))});
          else
            s.on(event::Seen{.host = host, .results = {{.why_not = {"x: y"}}}});
          break;
        case 6:
          s.lose(host, static_cast<SshFailure::FailureKind>(random() % 8));
          break;
        case 7:
          s.end(host, static_cast<int>(random() % 3));
          break;
        case 8:
          s.on(event::Refused{.host = host, .exit_code = 66, .why = "no"});
          break;
        case 9:
          s.on(event::Told{2});
          break;
        case 10:
          s.begun(host);
          break;
        case 11:
          if (random() % 8 == 0) s.on(event::Over{host});
          break;
        default:
          s.on(event::Tick{});
          break;
      }
    }
    CAPTURE(seed);
    CHECK(s.all<action::Finish>().size() <= 1);
    std::map<int, int> begun, called;
    for (const LaunchAction& one : s.done) {
      if (const auto* begins = std::get_if<action::TellBegin>(&one)) ++begun[begins->host];
      if (const auto* dial = std::get_if<action::Dial>(&one)) ++called[dial->host];
    }
    for (const auto& [host, count] : begun)
      CHECK((count == 1 || (s.at(host).again && count <= called[host])));
    for (const auto& [from, count] : begun)
      for (const Gap& gap : s.at(from).gaps) CHECK(begun.count(gap.to) == 0);
    // Somebody is there to end it.
    const auto runs = [](const HostState& one) { return one.phase == HostPhase::kRunning; };
    if (s.state.begun && !s.state.finished) CHECK(std::ranges::any_of(s.state.hosts, runs));
    if (!s.state.finished && !s.state.begun) CHECK(next_deadline(s.state).has_value());
  }
}

TEST_CASE("a detached launch ends when every host has begun, and is remembered before") {
  Scenario s({"a", "b"}, 0, 0, Purpose::kDetach);
  s.run_all();
  const auto index_of = [&](const auto& wanted) {
    for (std::size_t i = 0; i < s.done.size(); ++i)
      if (s.done[i].index() == LaunchAction(wanted).index()) return i;
    return s.done.size();
  };
  CHECK(index_of(action::Remember{}) < index_of(action::TellBegin{}));
  s.end(0, 0);
  CHECK(!s.exit_code());
  s.end(1, 0);
  CHECK(s.all<action::TellDetached>().size() == 1);
  CHECK(s.exit_code() == 0);
}

TEST_CASE("a detached launch that one host did not answer to the end is no success, but can be stopped") {
  Scenario s({"a", "b"}, 0, 0, Purpose::kDetach);
  s.run_all();
  s.end(0, 0);
  s.lose(1, SshFailure::kOther);
  CHECK(s.all<action::TellDetached>().size() == 1);
  CHECK(s.exit_code() == kExitUnavailable);
  CHECK(s.said().find("whether its agent has begun is not known") != std::string::npos);
}

TEST_CASE("who comes back to a job asks each host as it answers, and goes on without those that fail") {
  Scenario s({"a", "b", "c"}, 0, 0, Purpose::kAttach);
  s.on(event::Begin{});
  s.answer(2);
  CHECK(s.all<action::SendJob>().size() == 1);
  s.lose(1, SshFailure::kOther, "no route");
  CHECK(s.said() == "b: no route\n");
  s.answer(0);
  s.end(0, 3);
  CHECK(!s.exit_code());
  s.end(2, 0);
  CHECK(s.exit_code() == 3);
}

TEST_CASE("Ctrl-C on an attach leaves the job alone, on a stop it is passed on") {
  for (const Purpose purpose : {Purpose::kAttach, Purpose::kLogs, Purpose::kStop}) {
    Scenario s({"a"}, 0, 0, purpose);
    s.on(event::Begin{});
    s.answer(0);
    s.on(event::Told{2});
    const bool stops = purpose == Purpose::kStop;
    CHECK(s.all<action::PassSignal>().size() == (stops ? 1 : 0));
    CHECK(s.exit_code() == (stops ? std::nullopt : std::optional(130)));
  }
}

TEST_CASE("stop and logs end with 0 when every host has told all, whatever the job's code") {
  for (const Purpose purpose : {Purpose::kStop, Purpose::kLogs}) {
    for (const bool one_fails : {false, true}) {
      Scenario s({"a", "b"}, 0, 0, purpose);
      s.on(event::Begin{});
      s.answer(0);
      s.answer(1);
      if (one_fails)
        s.on(event::Refused{.host = 1, .exit_code = 66, .why = "no detached run"});
      else
        s.end(1, 143);
      s.end(0, 143);
      CHECK(s.exit_code() == (one_fails ? kExitUnavailable : 0));
    }
  }
}

TEST_CASE("what several agents say alike is shown once, for a while") {
  RepeatedWords words;
  CHECK(words.is_new(0, "stopping 1 worker", 0));
  CHECK(!words.is_new(1, "stopping 1 worker", 10));
  CHECK(words.is_new(0, "stopping 1 worker", 20));
  CHECK(words.is_new(1, "something else", 30));
  CHECK(words.is_new(1, "stopping 1 worker", 60'000));
  // So many that the first is forgotten before its time: memory has a bound.
  for (int i = 0; i < 4096; ++i) {
    CHECK(!words.is_new(0, "stopping 1 worker", 60'001));
    CHECK(words.is_new(0, std::to_string(i), 60'002));
    if (i == 4094) break;
  }
  CHECK(words.is_new(0, "one more", 60'003));
  CHECK(words.is_new(0, "stopping 1 worker", 60'004));
}

}  // namespace
}  // namespace dtrun::cmd::launch_test
