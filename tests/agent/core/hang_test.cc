#include "agent/core/hang.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrun::hang_test {

using namespace dtrun::agent;

namespace {

// Workers that the test moves, looked at in the detector's own rhythm.
class Node {
 public:
  Node(HangSettings settings, int workers) : detector(settings) {
    for (int i = 0; i < workers; ++i) signs.push_back(LifeSigns{.local_rank = i});
  }

  // Lets time pass; what the last look found.
  std::vector<HungWorker> passes(std::int64_t ms) {
    std::vector<HungWorker> hung;
    for (const std::int64_t end = now + ms; now < end;) {
      now = std::min(end, now + detector.interval());
      hung = detector.look(signs, held_back, now);
      if (!hung.empty()) break;
    }
    return hung;
  }

  HangDetector detector;
  std::vector<LifeSigns> signs;
  bool held_back = false;
  std::int64_t now = 1000000;
};

constexpr HangSettings kBeats{.heartbeat_timeout = 30000};
constexpr HangSettings kStall{.stall_timeout = 60000};
constexpr HangSettings kNotices{.silence_notice = 300000, .idle_notice = 600000, .wait_notice = 30000};

bool any_overdue(const HangDetector& detector) {
  return std::ranges::any_of(detector.quiet(), &QuietWorker::overdue);
}

}  // namespace

TEST_CASE("a worker whose heartbeats stop hangs after the timeout, and not before") {
  Node node(kBeats, 2);
  for (std::uint64_t beat = 1; beat <= 10; ++beat) {
    node.signs[0].beat = node.signs[1].beat = beat;
    CHECK(node.passes(10000).empty());
  }
  for (std::uint64_t beat = 11; beat <= 12; ++beat) {
    node.signs[0].beat = beat;
    CHECK(node.passes(10000).empty());
  }
  node.signs[0].beat = 13;
  const auto hung = node.passes(10000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 1);
  CHECK_FALSE(hung[0].stalled);
  CHECK(hung[0].silent_ms >= 30000);
  CHECK(hung[0].silent_ms <= 36000);
}

TEST_CASE("a program that never gave a heartbeat is not expected to") {
  Node node(kBeats, 1);
  CHECK(node.passes(1000000).empty());
  node.signs[0].beat = 1;
  CHECK(node.passes(29000).empty());
  CHECK(node.passes(10000).size() == 1);
}

TEST_CASE("of workers that hang those are at fault that do not wait, and never one that waits for a peer") {
  using enum Activity;
  CHECK(at_fault({{0, kWaitsForPeers}, {1, kElsewhere}}) == std::vector{1});
  CHECK(at_fault({{0, kWaits}, {1, kElsewhere}, {2, kComputes}, {3, kWaits}}) == std::vector{1, 2});
  CHECK(at_fault({{0, kSilent}, {1, kWaits}}) == std::vector{0});
  CHECK(at_fault({{0, kWaits}, {1, kWaitsForPeers}, {2, kUnseen}}) == std::vector{0, 2});
  CHECK(at_fault({{0, kWaitsForPeers}, {1, kWaitsForPeers}}).empty());
}

TEST_CASE("a worker that was found to wait for its peers has the whole timeout again") {
  Node node(kBeats, 2);
  for (auto& one : node.signs) one.beat = 1;
  CHECK(node.passes(36000).size() == 2);
  node.detector.waits_for_peers(0);
  node.detector.waits_for_peers(7);  // there is none
  const auto other = node.passes(6000);
  REQUIRE(other.size() == 1);
  CHECK(other[0].local_rank == 1);
  node.signs[1].beat = 2;
  CHECK(node.passes(18000).empty());
  CHECK(node.passes(12000).size() == 1);
  Node stalled(kStall, 1);
  CHECK(stalled.passes(66000).size() == 1);
  stalled.detector.waits_for_peers(0);
  CHECK(stalled.passes(55000).empty());
  CHECK(stalled.passes(10000).size() == 1);
}

TEST_CASE("a worker that has begun more collectives than another of its node waits for it") {
  Node node(kBeats, 3);
  for (auto& one : node.signs) one.beat = 1;
  node.signs[0].collectives = node.signs[2].collectives = 9;
  node.signs[1].collectives = 8;
  const auto hung = node.passes(36000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 1);
  CHECK(hung[0].alone);
  CHECK(collectives_of(hung) == 8);
  node.signs[1].collectives = 9;  // and now there is nobody to wait for
  for (int look = 1; look < 6; ++look) CHECK(node.passes(5000).size() == 1);
  CHECK(node.passes(5000).size() == 3);
}

TEST_CASE("a worker that does not count its collectives is judged by its silence alone") {
  Node node(kBeats, 2);
  for (auto& one : node.signs) one.beat = 1;
  node.signs[0].collectives = 9;
  const auto hung = node.passes(36000);
  CHECK(hung.size() == 2);
  CHECK_FALSE(collectives_of(hung).has_value());
  CHECK_FALSE(collectives_of({}).has_value());
}

TEST_CASE("in a stall, too, those hang that have begun the fewest collectives") {
  Node node(kStall, 2);
  node.signs[0].collectives = 9;
  node.signs[1].collectives = 8;
  const auto hung = node.passes(66000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 1);
  CHECK(hung[0].stalled);
}

TEST_CASE("workers wait for a node whose workers have begun fewer collectives, or are not silent") {
  CHECK(wait_for_another_node(9, {{9, 8}}));
  CHECK(wait_for_another_node(9, {{9, std::nullopt}}));
  CHECK_FALSE(wait_for_another_node(8, {{9, 8, 10}}));
  CHECK_FALSE(wait_for_another_node(9, {{9, 9}}));
}

TEST_CASE("of several that fell silent the one that did first is named first") {
  Node node(kBeats, 3);
  for (auto& one : node.signs) one.beat = 1;
  CHECK(node.passes(6000).empty());
  node.signs[0].beat = 2;
  node.signs[2].beat = 2;
  CHECK(node.passes(6000).empty());
  node.signs[0].beat = 3;
  const auto first = node.passes(40000);
  REQUIRE(first.size() == 1);
  CHECK(first[0].local_rank == 1);
  node.passes(6000);
  const auto all = node.passes(6000);
  REQUIRE(all.size() == 3);
  CHECK(all[0].local_rank == 1);
  CHECK(all[1].local_rank == 2);
}

TEST_CASE("a stall is when no worker of the node writes or computes") {
  Node node(kStall, 2);
  for (int i = 0; i < 20; ++i) {  // one computes while the other waits for it
    node.signs[0].cpu_ms += 9000;
    CHECK(node.passes(10000).empty());
  }
  for (int i = 0; i < 20; ++i) {  // one writes
    node.signs[1].output_bytes += 1;
    CHECK(node.passes(10000).empty());
  }
  CHECK(node.passes(50000).empty());
  const auto hung = node.passes(20000);
  REQUIRE(hung.size() == 2);
  CHECK(hung[0].stalled);
  CHECK(hung[0].local_rank == 0);  // silent for longer
}

TEST_CASE("a thread that only looks at its watch is no work, a loop that polls for real is") {
  Node watchdog(kStall, 1);
  std::vector<HungWorker> hung;
  for (int i = 0; i < 20 && hung.empty(); ++i) {
    watchdog.signs[0].cpu_ms += 25;  // 2.5 ms a second: gloo's loop, which wakes up 100 times
    hung = watchdog.passes(10000);
  }
  CHECK(hung.size() == 1);
  Node poller(kStall, 1);
  for (int i = 0; i < 60; ++i) {
    poller.signs[0].cpu_ms += 150;  // 15 ms a second
    CHECK(poller.passes(10000).empty());
  }
}

TEST_CASE("processes that come and go are work, also when their CPU time goes with them") {
  Node node(kStall, 1);
  node.signs[0].cpu_ms = 5000;
  for (int i = 0; i < 12; ++i) {
    node.signs[0].processes = static_cast<std::uint64_t>(i);
    CHECK(node.passes(30000).empty());
  }
  node.signs[0].cpu_ms = 1000;
  CHECK(node.passes(55000).empty());
  CHECK(node.passes(20000).size() == 1);
}

TEST_CASE("an agent that was stopped itself wakes up without killing anybody") {
  Node node(kBeats, 1);
  node.signs[0].beat = 1;
  CHECK(node.passes(34000).empty());  // it has been silent for 29 s of the 30
  node.now += 3600000;                // SIGSTOP, or a suspended machine
  CHECK(node.detector.look(node.signs, false, node.now).empty());
  node.signs[0].beat = 2;  // the worker wakes up a little later
  CHECK(node.passes(24000).empty());
  node.now += 3600000;
  CHECK(node.detector.look(node.signs, false, node.now).empty());
  CHECK(node.passes(12000).size() == 1);  // it did not
}

TEST_CASE("what an agent slept through is not held against its workers later either") {
  Node node(kBeats, 1);
  node.signs[0].beat = 1;
  CHECK(node.passes(5000).empty());
  node.now += 3600000;
  CHECK(node.detector.look(node.signs, false, node.now).empty());
  CHECK(node.passes(12000).empty());
  CHECK(node.passes(20000).size() == 1);
}

TEST_CASE("a worker that waits for us to read its output does not hang") {
  for (const HangSettings& settings : {kBeats, kStall}) {
    Node node(settings, 1);
    node.signs[0].beat = 1;
    node.held_back = true;
    CHECK(node.passes(1000000).empty());
    node.held_back = false;
    CHECK(node.passes(25000).empty());
    CHECK(node.passes(100000).size() == 1);
  }
}

TEST_CASE("workers that ended do not count") {
  Node node(kStall, 2);
  CHECK(node.passes(30000).empty());
  node.signs.erase(node.signs.begin());
  CHECK(node.passes(20000).empty());
  const auto hung = node.passes(30000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 1);
  node.signs.clear();
  CHECK(node.passes(100000).empty());
}

TEST_CASE("a worker hangs from the millisecond on at which a timeout is over") {
  for (const HangSettings& settings : {kBeats, HangSettings{0, 30000}}) {
    Node node(settings, 1);
    node.signs[0].beat = 1;
    CHECK(node.detector.look(node.signs, false, node.now).empty());
    CHECK(node.passes(29999).empty());
    const auto hung = node.passes(1);
    REQUIRE(hung.size() == 1);
    CHECK(hung[0].silent_ms == 30000);
  }
}

TEST_CASE("a worker for which both timeouts are over at once is named once, for its heartbeats") {
  Node node({30000, 30000}, 1);
  node.signs[0].beat = 1;
  const auto hung = node.passes(60000);
  REQUIRE(hung.size() == 1);
  CHECK_FALSE(hung[0].stalled);
}

TEST_CASE("a look counts as late, and judges nobody, from 3 s after its time") {
  for (const std::int64_t late : {3000, 3001}) {
    CAPTURE(late);
    Node node({3000, 0}, 1);
    node.signs[0].beat = 1;
    CHECK(node.detector.look(node.signs, false, node.now).empty());
    node.now += node.detector.interval() + late;
    CHECK(node.detector.look(node.signs, false, node.now).size() == (late > 3000 ? 0 : 1));
  }
}

TEST_CASE("work is more than a hundredth of the time that passed") {
  struct Case {
    std::int64_t after_ms, cpu_ms;
    bool work;
  };
  for (const Case& c : {Case{5000, 50, false}, {5000, 51, true}, {30000, 300, false}, {30000, 301, true}}) {
    CAPTURE(c.after_ms);
    CAPTURE(c.cpu_ms);
    Node node(kStall, 1);
    CHECK(node.detector.look(node.signs, false, node.now).empty());
    CHECK(node.passes(c.after_ms - 5000).empty());
    node.signs[0].cpu_ms = c.cpu_ms;
    CHECK(node.passes(5000).empty());
    CHECK(node.passes(60000 - c.after_ms).size() == (c.work ? 0 : 1));
  }
}

TEST_CASE("looks are frequent enough for the timeout, and no more than that") {
  CHECK(HangDetector({25000, 0}).interval() == 5000);
  CHECK(HangDetector({20000, 0}).interval() == 4000);
  CHECK(HangDetector({0, 505}).interval() == 101);
  CHECK(HangDetector({0, 500}).interval() == 100);
  CHECK(HangDetector({0, 499}).interval() == 100);
  CHECK(HangDetector({30000, 0}).interval() == 5000);
  CHECK(HangDetector({30000, 2000}).interval() == 400);
  CHECK(HangDetector({0, 200}).interval() == 100);
  CHECK(HangDetector({3600000, 0}).interval() == 5000);
}

TEST_CASE("a worker is silent alone only while the others that give heartbeats have given some lately") {
  for (const bool other_beats : {true, false}) {
    Node node(kBeats, 2);
    node.signs[0].beat = node.signs[1].beat = 1;
    std::vector<HungWorker> hung;
    for (std::uint64_t beat = 2; hung.empty() && beat < 100; ++beat) {
      if (other_beats || beat < 4) node.signs[1].beat = beat;  // goes on for a moment, or for ever
      hung = node.passes(1000);
    }
    REQUIRE(hung.size() == 1);
    CHECK(hung[0].local_rank == 0);
    CHECK(hung[0].alone == other_beats);
  }
}

TEST_CASE(
    "people are told of a worker that gave heartbeats every few seconds and then none for five minutes") {
  Node node(kNotices, 2);
  for (std::uint64_t beat = 1; beat <= 20; ++beat) {
    node.signs[0].beat = node.signs[1].beat = beat;
    CHECK(node.passes(3000).empty());
    CHECK(node.detector.quiet().empty());
  }
  for (std::uint64_t beat = 21; beat <= 119; ++beat) {
    node.signs[0].beat = beat;
    CHECK(node.passes(3000).empty());
    CHECK_FALSE(any_overdue(node.detector));
  }
  REQUIRE(node.detector.quiet().size() == 1);
  CHECK(node.detector.quiet()[0].local_rank == 1);
  node.signs[0].beat = 120;
  CHECK(node.passes(8000).empty());  // none is ended for it
  const std::vector<QuietWorker> quiet = node.detector.quiet();
  REQUIRE(any_overdue(node.detector));
  CHECK(quiet.back().why == QuietWorker::kSilent);
  CHECK(quiet.back().local_rank == 1);
  CHECK(quiet.back().for_ms >= 300000);
  CHECK(quiet.back().for_ms < 310000);
  node.signs[0].beat = node.signs[1].beat = 121;
  node.passes(2000);
  CHECK(node.detector.quiet().empty());
}

TEST_CASE("a silence is told only where it is long beside those before it") {
  Node node({.silence_notice = 300000}, 1);
  for (std::uint64_t beat = 1; beat <= 4; ++beat) {
    node.signs[0].beat = beat;
    node.passes(250000);
    CHECK_FALSE(any_overdue(node.detector));
  }
  node.passes(2000000);
  CHECK_FALSE(any_overdue(node.detector));
  node.passes(300000);
  CHECK(any_overdue(node.detector));
}

TEST_CASE("a program that never gave a heartbeat is told of once its whole node is idle for ten minutes") {
  Node node(kNotices, 2);
  for (int minute = 0; minute < 20; ++minute) {
    (minute % 2 == 0 ? node.signs[0].io_bytes : node.signs[1].io_bytes) += 1'000'000;
    node.passes(60000);
    CHECK(node.detector.quiet().empty());
  }
  for (int minute = 0; minute < 20; ++minute) {
    node.signs[0].cpu_ms += 1000;
    node.passes(60000);
    CHECK(node.detector.quiet().empty());
  }
  node.signs[1].output_bytes += 1;
  node.passes(595000);
  CHECK(node.detector.quiet().empty());
  node.passes(10000);
  REQUIRE(node.detector.quiet().size() == 2);
  CHECK(node.detector.quiet()[1].why == QuietWorker::kIdle);
  CHECK(any_overdue(node.detector));
  node.signs[1].output_bytes += 1;
  node.passes(2000);
  CHECK(node.detector.quiet().empty());
}

TEST_CASE("threads that wake up now and then, and wake each other by a few bytes, are idle") {
  Node node(kNotices, 1);
  for (int second = 0; second < 620; ++second) {
    node.signs[0].cpu_ms += 2;
    node.signs[0].io_bytes += 100;
    node.passes(1000);
  }
  CHECK(any_overdue(node.detector));
}

TEST_CASE("a wait for a peer is seen soon, and told once it is long") {
  Node node(kNotices, 2);
  for (auto& one : node.signs) one.beat = 1;
  for (std::int64_t waits = 1000; waits < 40000; waits += 2000) {
    for (auto& one : node.signs) ++*one.beat;
    node.signs[1].waits_ms = waits;
    node.passes(2000);
    CHECK(node.detector.quiet().size() == (waits >= 5000 ? 1u : 0u));
    CHECK(any_overdue(node.detector) == (waits >= 30000));
  }
  CHECK(node.detector.quiet()[0] == QuietWorker{1, QuietWorker::kWaits, 39000, true});
}

TEST_CASE("a worker that was stopped within a wait does not wait for a peer: it is silent") {
  Node node(kNotices, 1);
  node.signs[0].beat = 1;
  for (node.signs[0].waits_ms = 0; node.signs[0].waits_ms < 40000; node.signs[0].waits_ms += 2000)
    node.passes(2000);
  REQUIRE(node.detector.quiet().size() == 1);
  CHECK(node.detector.quiet()[0].why == QuietWorker::kSilent);
}

TEST_CASE("nothing is overdue right after this process itself stood still, nor while output is held back") {
  Node node(kNotices, 1);
  node.signs[0].beat = 1;
  node.passes(4000);
  node.now += 400000;
  node.signs[0].waits_ms = 400000;
  node.detector.look(node.signs, false, node.now);
  CHECK_FALSE(any_overdue(node.detector));
  node.signs[0].waits_ms = 0;
  node.held_back = true;
  node.passes(2000000);
  CHECK(node.detector.quiet().empty());
}

TEST_CASE("what is told by default is told of nobody else, and an option sets the time of all") {
  const HangSettings trainer = hang_settings(0, 0, {}, true, 30000),
                     program = hang_settings(0, 0, {}, false, 30000);
  CHECK(trainer.heartbeat_timeout + trainer.stall_timeout == 0);
  CHECK(trainer.raised_timeout == 30000);
  CHECK(hang_settings(0, 0, {}, true, 0).raised_timeout == 1000);
  CHECK(trainer.silence_notice == 300000);
  CHECK(trainer.wait_notice == 30000);
  CHECK(trainer.idle_notice == 0);
  CHECK(program.idle_notice == 600000);
  CHECK(program.wait_notice == 0);
  CHECK(hang_settings(0, 0, 60000, true, 30000).wait_notice == 30000);
  CHECK(hang_settings(0, 0, 5000, true, 30000).wait_notice == 5000);
  CHECK(hang_settings(0, 0, 60000, false, 30000).idle_notice == 60000);
  CHECK_FALSE(hang_settings(7, 8, 0, false, 30000).tells());
  CHECK(hang_settings(7, 8, 0, false, 30000).ends());
}

TEST_CASE("a worker that wrote its error file has some time to end, and only that worker hangs") {
  Node node({.raised_timeout = 30000}, 3);
  node.passes(100000);
  node.signs[1].raised = true;
  CHECK(node.passes(29000).empty());
  const auto hung = node.passes(10000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 1);
  CHECK(hung[0].raised);
}

TEST_CASE("a program that caught its error and goes on does not hang") {
  Node node({.raised_timeout = 30000}, 1);
  node.passes(1000);
  node.signs[0].raised = true;
  for (int i = 0; i < 20; ++i) {
    if (i % 3 == 0) node.signs[0].output_bytes += 10;
    if (i % 3 == 1) node.signs[0].cpu_ms += 5000;
    if (i % 3 == 2) node.signs[0].beat = node.signs[0].beat.value_or(0) + 1;
    CHECK(node.passes(20000).empty());
  }
  CHECK(node.passes(40000).size() == 1);
}

TEST_CASE("where all stand still, those that raised an error are at fault") {
  Node node({.stall_timeout = 4000, .raised_timeout = 30000}, 3);
  node.passes(1000);
  node.signs[2].raised = true;
  const auto hung = node.passes(10000);
  REQUIRE(hung.size() == 1);
  CHECK(hung[0].local_rank == 2);
  CHECK(hung[0].stalled);
  CHECK(hung[0].raised);
}

TEST_CASE("a traceback that is the last word of a worker is told from one that it went on after") {
  const std::vector<std::string> raised = {"loss 3.1",
                                           "Traceback (most recent call last):",
                                           "  File \"train.py\", line 9, in <module>",
                                           "    step()",
                                           "RuntimeError: boom",
                                           "  with more of it",
                                           "and more"};
  CHECK(ends_in_traceback(raised));
  std::vector<std::string> torch;
  for (const std::string& line : raised) torch.push_back("[rank1]: " + line);
  CHECK(ends_in_traceback(torch));
  CHECK(ends_in_traceback(
      {"  File \"x.py\", line 1", "    ^^^^", "torch.OutOfMemoryError: CUDA out of memory."}));
  CHECK(ends_in_traceback({"  File \"x.py\", line 1", "    raise", "KeyboardInterrupt"}));
  std::vector<std::string> went_on = raised;
  for (int i = 0; i < 5; ++i) went_on.push_back("step " + std::to_string(i));
  CHECK_FALSE(ends_in_traceback(went_on));
  CHECK_FALSE(ends_in_traceback({}));
  CHECK_FALSE(ends_in_traceback({"Error: no frames"}));
  CHECK_FALSE(ends_in_traceback({"  File \"x.py\", line 1", "    frames whose end is not there"}));
  CHECK_FALSE(ends_in_traceback({"  File \"x.py\", line 1", "two words: no error's name"}));
}

}  // namespace dtrun::hang_test
