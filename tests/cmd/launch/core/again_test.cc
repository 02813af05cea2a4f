// A host of a range that was lost is called again for as long as others run, and its agent begins as the
// first one did. The job's end is not held up by it.
#include <doctest/doctest.h>

#include "cmd/launch/core/launch.h"
#include "proto/core/exit_codes.h"
#include "tests/cmd/launch/core/scenario.h"

namespace dtrun::cmd::again_test {
namespace {

// Time passes until the lost host is due, and it is called.
void call(Scenario& s) {
  REQUIRE(next_deadline(s.state));
  s.now = std::max(s.now, *next_deadline(s.state));
  s.on(event::Tick{});
}

Scenario running(std::vector<std::string> hosts = {"a", "b", "c"}, int min = 2) {
  const int max = static_cast<int>(hosts.size());
  Scenario s(std::move(hosts), min, max);
  s.run_all();
  s.now += kBriefLife;
  return s;
}

void over(Scenario& s, int host, int exit_code) {
  s.on(event::Over{host});
  s.end(host, exit_code);
}

}  // namespace

TEST_CASE("a lost host is called every 2 s until it answers, without a word, and begins at once") {
  Scenario s = running();
  const auto begun = s.all<action::TellBegin>();
  s.lose(1, SshFailure::kOther, "Timeout, server not responding");
  CHECK(
      s.said() ==
      "b: the line to it is gone (Timeout, server not responding); its agent ends its part of the job; once "
      "it answers another one is started there\n");
  const Millis lost = s.now;
  for (int calls = 1; calls <= 100; ++calls) {
    const auto before = s.all<action::Dial>().size();
    call(s);
    CHECK(s.now == lost + calls * kCallAgain);
    CHECK(s.all<action::Dial>().size() == before + 1);
    CHECK(s.all<action::Dial>().back().host == 1);
    s.lose(1, calls % 2 == 0 ? SshFailure::kUnreachable : SshFailure::kRefusedLogin, "No route to host");
  }
  call(s);
  CHECK(s.all<action::Say>().size() == 1);
  s.answer(1);
  CHECK(s.all<action::SendJob>().back().host == 1);
  const auto looks = s.all<action::AskToLook>().size();
  s.plan(1);
  CHECK(s.all<action::AskToLook>().size() == looks);
  REQUIRE(s.all<action::TellBegin>().size() == 4);
  const auto again = s.all<action::TellBegin>().back();
  CHECK(again.host == 1);
  CHECK(again.address == begun[1].address);
  CHECK(again.may_lead.size() == begun[1].may_lead.size());
  CHECK_FALSE(again.node_rank);  // another node may have it by now
  s.begun(1);
  s.lose(1, SshFailure::kOther, "broken");  // a second time
  call(s);
  CHECK(s.at(1).phase == HostPhase::kDialling);
  CHECK(!s.exit_code());
}

TEST_CASE("a host whose agents live for less than 30 s is called ever less often, up to every 64 s") {
  Scenario s = running();
  Millis gap = kCallAgain;
  for (int life = 0; life < 8; ++life) {
    const bool brief = life != 7;
    s.now += brief ? kBriefLife - 1 : kBriefLife;
    s.lose(1, SshFailure::kOther, "killed");
    if (life > 0) gap = brief ? std::min<Millis>(2 * gap, 64'000) : kCallAgain;
    CHECK(next_deadline(s.state) == s.now + gap);
    call(s);
    s.plan(1);
  }
}

TEST_CASE("a call that is not answered ends after its time, and is made again") {
  Scenario s = running();
  s.lose(1, SshFailure::kOther);
  call(s);
  const Millis called = s.now;
  s.on(event::Quiet{{1}});
  call(s);
  CHECK(s.now == called + LaunchSettings().answer_time);
  CHECK(s.at(1).phase == HostPhase::kLost);
  CHECK(s.all<action::HangUp>().back().host == 1);
  call(s);
  CHECK(s.now == called + LaunchSettings().answer_time + kCallAgain);
  CHECK(s.at(1).phase == HostPhase::kDialling);
  CHECK(s.all<action::Say>().size() == 1);
}

TEST_CASE("a host that answers and cannot run the job any more is told of, and not called again") {
  Scenario s = running();
  s.lose(1, SshFailure::kOther);
  call(s);
  s.answer(1);
  s.on(event::Refused{.host = 1, .exit_code = kExitNoInput, .why = "/data: No such file or directory"});
  CHECK(s.said().ends_with("b: /data: No such file or directory; it is not called again\n"));
  CHECK(!next_deadline(s.state));
  // An agent from before that is ending yet is another matter.
  Scenario ending = running();
  ending.lose(1, SshFailure::kOther);
  call(ending);
  ending.answer(1);
  ending.on(event::Refused{.host = 1, .exit_code = kExitUnavailable, .why = "an earlier agent"});
  call(ending);
  CHECK(ending.at(1).phase == HostPhase::kDialling);
}

TEST_CASE("fewer hosts than the range needs wait for the lost one, as the agents do") {
  Scenario s = running({"a", "b", "c"}, 2);
  s.lose(1, SshFailure::kOther);
  s.lose(2, SshFailure::kOther);
  CHECK(s.all<action::PassSignal>().empty());
  CHECK(!s.exit_code());
  call(s);
  CHECK(s.at(1).phase == HostPhase::kDialling);
  CHECK(s.at(2).phase == HostPhase::kDialling);
}

TEST_CASE("with a fixed number of hosts, or before all have begun, a lost one is not called again") {
  Scenario fixed({"a", "b"});
  fixed.run_all();
  fixed.lose(1, SshFailure::kOther);
  CHECK(!next_deadline(fixed.state));
  Scenario first({"a", "b", "c"}, 1, 3);
  first.place_all();
  first.reach_all();
  first.lose(0, SshFailure::kOther);
  CHECK(first.exit_code() == kExitUnavailable);
}

TEST_CASE("an agent that gave up its coordinator is started again while others run; another end is one") {
  Scenario s = running();
  s.end(1, kExitUnavailable);
  CHECK(s.said() == "b: its agent ended with 69, and another one is started\n");
  call(s);
  CHECK(s.at(1).phase == HostPhase::kDialling);
  for (const int code : {0, 1, 71, 143}) {
    CAPTURE(code);
    Scenario other = running();
    other.end(1, code);
    CHECK(!next_deadline(other.state));
  }
  Scenario over_there = running();
  over(over_there, 1, kExitUnavailable);  // of the run
  call(over_there);
  CHECK(over_there.at(1).phase == HostPhase::kEnded);
}

TEST_CASE(
    "all hosts that ran end: the one that is called meanwhile holds nobody up, and tells no exit code") {
  for (const bool answers : {false, true}) {
    CAPTURE(answers);
    Scenario s = running();
    s.lose(0, SshFailure::kOther);
    call(s);
    if (answers) s.answer(0);
    over(s, 1, 3);
    CHECK(s.at(0).phase == HostPhase::kLost);
    CHECK(s.all<action::HangUp>().front().host == 0);
    CHECK(!s.exit_code());
    over(s, 2, 3);
    CHECK(s.exit_code() == 3);
  }
  Scenario all_lost = running();
  for (int host : {0, 1, 2}) all_lost.lose(host, SshFailure::kOther);
  CHECK(all_lost.exit_code() == kExitUnavailable);
}

TEST_CASE(
    "an agent that does not hear of the run's end within 30 s is told to stop; the others' code counts") {
  Scenario s = running();
  over(s, 1, 0);
  over(s, 2, 0);
  CHECK(!s.exit_code());  // a is out of touch with the others
  const Millis told = s.now;
  call(s);
  CHECK(s.now == told + kHeardOfEnd);
  REQUIRE(s.all<action::PassSignal>().size() == 1);
  CHECK(s.all<action::PassSignal>().front().host == 0);
  CHECK(s.all<action::PassSignal>().front().signal == 15);
  s.end(0, 143);
  CHECK(s.exit_code() == 0);
  // One that has heard may take its time.
  Scenario slow = running();
  over(slow, 1, 0);
  over(slow, 2, 0);
  slow.on(event::Over{0});
  call(slow);
  CHECK(slow.all<action::PassSignal>().empty());
}

TEST_CASE("a signal ends the calls too") {
  Scenario s = running();
  s.lose(1, SshFailure::kOther);
  call(s);
  s.lose(2, SshFailure::kOther);
  s.on(event::Told{2});
  CHECK(s.all<action::PassSignal>().size() == 1);
  CHECK(s.at(1).phase == HostPhase::kLost);
  CHECK(!next_deadline(s.state));
  s.end(0, 130);
  CHECK(s.exit_code() == 130);
}

}  // namespace dtrun::cmd::again_test
