// The slow rank and its cause: windows with planted faults, invented jobs with noise, and accounts that
// cannot be.
#include "rendezvous/core/observe/straggler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "rendezvous/core/observe/kernel_facts.h"
#include "rendezvous/core/observe/slow_network.h"
#include "rendezvous/core/observe/slow_rank.h"

namespace dtrun::rendezvous {
namespace {

// Ranks that train 20 ms of each step and wait 2 ms for each other, all alike.
Window alike(int world) {
  Window window;
  for (int rank = 0; rank < world; ++rank)
    window.push_back({.rank = rank,
                      .math = 0.018,
                      .data = 0.001,
                      .wait_peers = 0.002,
                      .other = 0.001,
                      .microbatches = 4,
                      .cpu = 0.9,
                      .cpu_wait = 0.01});
  return window;
}

// `more` seconds of a step, that all others wait for.
Window with_late(int world, int rank, double WindowPart::*part, double more) {
  Window window = alike(world);
  for (WindowPart& each : window) {
    if (each.rank == rank)
      each.*part += more;
    else
      each.wait_peers += more;
  }
  return window;
}

// A job whose coordinator hears of every rank once a second.
class Job {
 public:
  explicit Job(int world) : times_(static_cast<std::size_t>(world)), usages_(times_.size()) {}

  // Returns the verdicts that were news.
  std::vector<Verdict> run(int seconds, const Window& part, double steps_a_second = 40) {
    std::vector<Verdict> news;
    for (int second = 0; second < seconds; ++second) {
      now_ += 1000;
      for (std::size_t rank = 0; rank < times_.size(); ++rank) {
        add(part[rank], steps_a_second, times_[rank], usages_[rank]);
        if (auto verdict = tell(static_cast<int>(rank), times_[rank])) news.push_back(*verdict);
      }
    }
    return news;
  }
  std::optional<Verdict> tell(int rank, const StepTimes& times) {
    const auto index = static_cast<std::size_t>(rank);
    const WorkerReport report{.step = 1000 + times.steps,
                              .times = tells_steps ? std::optional(times) : std::nullopt,
                              .usage = index < usages_.size() ? usages_[index] : WorkerUsage()};
    return tell(rank, report);
  }
  std::optional<Verdict> tell(int rank, const WorkerReport& report) {
    return watch.take(rank, static_cast<int>(times_.size()), report, now_,
                      [](int of) { return "node" + std::to_string(of); });
  }

  void pass(Millis time) { now_ += time; }

  bool tells_steps = true;
  StragglerWatch watch;

 private:
  static void add(const WindowPart& part, double steps, StepTimes& times, WorkerUsage& usage) {
    times.steps += static_cast<std::int64_t>(steps);
    times.math += part.math * steps, times.data += part.data * steps;
    times.wait_peers += part.wait_peers * steps, times.other += part.other * steps;
    times.microbatches += static_cast<std::int64_t>(part.microbatches * steps);
    usage.cpu += part.cpu, usage.cpu_wait += part.cpu_wait, usage.throttled += part.throttled;
    usage.stopped += part.stopped, usage.neighbour = part.neighbour;
    usage.major_faults += static_cast<std::int64_t>(part.major_faults);
    usage.read_bytes += static_cast<std::int64_t>(part.read_bytes);
  }

  std::vector<StepTimes> times_;
  std::vector<WorkerUsage> usages_;
  Millis now_ = 0;
};

const auto kSharedCores = [](int world, int rank) {
  auto window = with_late(world, rank, &WindowPart::math, 0.015);
  window[static_cast<std::size_t>(rank)].cpu_wait = 0.41;
  window[static_cast<std::size_t>(rank)].cpu = 0.46;
  return window;
};

TEST_CASE("ranks that are alike are not named") {
  for (int world : {1, 2, 3, 8}) CHECK_FALSE(judge_ranks(alike(world)).has_value());
  CHECK_FALSE(judge_ranks({}).has_value());
}

TEST_CASE("each rank's own time is told by what is usual for its work, or not at all") {
  using Ratios = std::vector<int>;
  CHECK(ratios_to_usual(alike(3)) == Ratios{1000, 1000, 1000});
  Window window = kSharedCores(4, 1);
  CHECK(ratios_to_usual(window) == Ratios{1000, 1750, 1000, 1000});
  window[1].microbatches = 8;  // it has twice the work: 39 ms are usual for that
  CHECK(ratios_to_usual(window)[1] == 897);
  CHECK(ratios_to_usual({{}, {}}) == Ratios{kUnknownRatio, kUnknownRatio});
  Job job(2);
  job.run(1, alike(2));
  CHECK(job.watch.ratios().empty());
  job.run(9, alike(2));
  CHECK(job.watch.ratios() == Ratios{1000, 1000});
  CHECK(job.watch.windows() > 2);
}

TEST_CASE("the cause is the part with most of the excess, and the kernel's facts that explain it") {
  auto expect = [](const Window& window, const char* cause, const char* text) {
    const auto verdict = judge_ranks(window);
    REQUIRE(verdict.has_value());
    CHECK(verdict->verdict.rank == 1);
    CHECK(verdict->verdict.cause == cause);
    CHECK(verdict->verdict.text == text);
  };
  expect(kSharedCores(4, 1), "shared_cores",
         "its cores are shared, and it ran 53 % of the time that it was ready to");
  auto window = kSharedCores(4, 1);
  window[1].throttled = 0.4;
  expect(window, "throttled", "its control group has used up its CPU quota (ran 0.46 s of each second)");
  window[1].stopped = 0.4;
  expect(window, "stopped", "a signal, or a debugger, has stopped it (for 0.40 s of each second)");
  window = kSharedCores(4, 1);
  window[1].neighbour = Neighbour{.pid = 812, .name = "stress\n", .cpus = 0.9};
  expect(window, "shared_cores",
         "its cores are shared with \"stress \" (pid 812), and it ran 53 % of the time that it was ready to");
  window = with_late(4, 1, &WindowPart::math, 0.018);
  expect(window, "processor", "the same work takes its processor 2.0 times as long");
  window[1].major_faults = 900;
  expect(window, "memory", "its memory comes back from a disk (900 pages a second)");
  window = with_late(4, 1, &WindowPart::other, 0.02);
  expect(window, "other", "it spends 21 ms of each step outside of math and data, the others 1.0 ms");
  window = with_late(4, 1, &WindowPart::data, 0.011);
  expect(window, "data", "it waits 12 ms of each step for its data, the others 1.0 ms");
  for (WindowPart& part : window) part.read_bytes = 4e6;
  expect(window, "data",
         "it waits 12 ms of each step for its data, the others 1.0 ms (11.0 MB/s, the others 132.0 MB/s)");
}

TEST_CASE(
    "where all wait for a processor, a rank that does so in its math has shared cores, one that works has "
    "not") {
  auto window = with_late(4, 1, &WindowPart::math, 0.018);
  for (WindowPart& part : window) part.cpu = 0.3, part.cpu_wait = 1.2;
  auto found = judge_ranks(window);
  REQUIRE(found.has_value());
  CHECK(found->verdict.cause == "shared_cores");
  window[1].cpu = 0.6;
  found = judge_ranks(window);
  REQUIRE(found.has_value());
  CHECK(found->verdict.cause == "processor");
}

TEST_CASE("two ranks are compared directly") {
  const auto verdict = judge_ranks(kSharedCores(2, 1));
  REQUIRE(verdict.has_value());
  CHECK(verdict->verdict.rank == 1);
  CHECK(verdict->verdict.loss == doctest::Approx(0.015 / 0.037));
  CHECK(verdict->who == "rank 1");
  CHECK_FALSE(judge_ranks(with_late(2, 0, &WindowPart::math, 0.001)).has_value());
}

TEST_CASE(
    "of ranks that a busy machine slows alike none is named, and one that is slow by itself costs what it "
    "costs") {
  auto window = with_late(4, 0, &WindowPart::math, 0.016);
  window[2].math += 0.012, window[2].wait_peers -= 0.012;  // both on one core, which others use
  for (WindowPart& part : window) part.cpu_wait = part.rank % 2 == 0 ? 0.4 : 0.02;
  CHECK_FALSE(judge_ranks(window).has_value());
  window[2].math -= 0.008, window[2].wait_peers += 0.008;
  const auto verdict = judge_ranks(window);
  REQUIRE(verdict.has_value());
  CHECK(verdict->verdict.rank == 0);
  CHECK(verdict->verdict.loss == doctest::Approx((0.016 - 0.004) / 0.038));
}

TEST_CASE("a rank with more microbatches is not slow, and one of fewer may be") {
  auto window = alike(3);  // 3, 3 and 2 of them
  for (WindowPart& part : window) part.microbatches = 3, part.math = 0.027;
  window[2].microbatches = 2, window[2].math = 0.018, window[2].wait_peers += 0.009;
  CHECK_FALSE(judge_ranks(window).has_value());
  window[2].math = 0.036, window[2].wait_peers = 0;
  window[0].wait_peers += 0.009, window[1].wait_peers += 0.009;
  const auto verdict = judge_ranks(window);
  REQUIRE(verdict.has_value());
  CHECK(verdict->verdict.rank == 2);
}

TEST_CASE("a rank that is slow, and waits as the others do, delays nobody") {
  auto window = with_late(4, 1, &WindowPart::other, 0.02);
  window[1].wait_peers = 0.03;
  CHECK_FALSE(judge_ranks(window).has_value());
}

TEST_CASE(
    "a rank is named once it has led three of four windows, told once, and not named once it leads no more") {
  Job job(4);
  CHECK(job.run(20, alike(4)).empty());
  CHECK(job.run(5, kSharedCores(4, 3)).empty());
  const auto named = job.run(30, kSharedCores(4, 3));
  REQUIRE(named.size() == 1);
  CHECK(
      named[0].text ==
      "rank 3 on node3 slows the run by 41 %: its cores are shared, and it ran 53 % of the time that it was "
      "ready to");
  CHECK(named[0].serious);
  REQUIRE(job.watch.verdict().has_value());
  CHECK(job.run(3, alike(4)).empty());
  const auto gone = job.run(30, alike(4));
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].text.empty());
  CHECK_FALSE(job.watch.verdict().has_value());
}

TEST_CASE("another cause, rank or seriousness is news") {
  Job job(4);
  REQUIRE(job.run(20, kSharedCores(4, 3)).size() == 1);
  auto news = job.run(20, with_late(4, 3, &WindowPart::data, 0.02));
  REQUIRE(news.size() == 1);
  CHECK(news[0].cause == "data");
  news = job.run(20, with_late(4, 3, &WindowPart::data, 0.003));
  REQUIRE(news.size() == 1);
  CHECK_FALSE(news[0].serious);
  news = job.run(20, with_late(4, 0, &WindowPart::data, 0.02));
  REQUIRE_FALSE(news.empty());
  CHECK(news.back().rank == 0);
  CHECK(job.watch.verdict()->rank == 0);
}

TEST_CASE("a rank that holds the run up once is told of with the step, and a minute later again") {
  Job job(4);
  REQUIRE(job.run(10, alike(4)).empty());
  auto once = with_late(4, 2, &WindowPart::data, 2.5);
  const auto hold_up = [&] {
    job.pass(2500);
    return job.run(1, once, 1);
  };
  std::vector<Verdict> news = hold_up();
  for (Verdict& more : job.run(8, alike(4))) news.push_back(std::move(more));
  REQUIRE(news.size() == 1);
  CHECK(news[0].rank == 2);
  CHECK(news[0].cause == "data");
  CHECK(news[0].step == 1401);
  CHECK_MESSAGE(news[0].text.starts_with("rank 2 on node2 held the run up once, for 2."), news[0].text);
  CHECK_MESSAGE(news[0].text.find(" s in step 1401: it waits ") != std::string::npos, news[0].text);
  CHECK_FALSE(job.watch.verdict().has_value());
  hold_up();
  CHECK(job.run(8, alike(4)).empty());
  job.run(60, alike(4));
  hold_up();
  CHECK(job.run(8, alike(4)).size() == 1);
}

TEST_CASE("a rank that goes on to be slow is named, and held nothing up once") {
  Job job(4);
  job.run(10, alike(4));
  const auto slow = with_late(4, 2, &WindowPart::data, 0.1);
  for (const Verdict& verdict : job.run(40, slow, 8)) CHECK(verdict.step == 0);
  REQUIRE(job.watch.verdict().has_value());
  CHECK(job.watch.verdict()->rank == 2);
}

// Ranks that wait for each other for `wait` seconds of a step of 20 ms more.
Window in_talks(double wait) {
  Window window = alike(4);
  for (WindowPart& part : window) part.wait_peers = wait;
  return window;
}

TEST_CASE("where all wait for each other in most of a step, the communication is told, and is no news") {
  Job job(4);
  CHECK(job.run(30, in_talks(0.009)).empty());
  REQUIRE(job.watch.verdict().has_value());
  CHECK(job.watch.verdict()->text ==
        "communication takes 31 % of a step on all ranks: a larger batch, or fewer ranks, would make that "
        "less");
  CHECK(job.watch.verdict()->rank == -1);
  CHECK_FALSE(job.watch.verdict()->serious);
  CHECK(job.run(30, alike(4)).empty());
  CHECK_FALSE(job.watch.verdict().has_value());
  // One rank does not wait: it computes. Or all wait for processors.
  Window window = in_talks(0.009);
  window[3].wait_peers = 0.001;
  CHECK_FALSE(judge_communication(window).has_value());
  window = in_talks(0.009);
  for (WindowPart& part : window) part.cpu_wait = 0.3;
  CHECK_FALSE(judge_communication(window).has_value());
  CHECK_FALSE(judge_communication({}).has_value());
}

TEST_CASE("a named rank is gone once the communication takes its place") {
  Job job(4);
  REQUIRE(job.run(20, kSharedCores(4, 3)).size() == 1);
  const auto news = job.run(30, in_talks(0.02));
  REQUIRE(news.size() == 1);
  CHECK(news[0].text.empty());
  CHECK(job.watch.verdict()->cause == kCommunication);
}

// Four ranks of a program that says nothing of its steps, one of which is kept back.
Window programs(double WindowPart::*fact, double value, bool by_another = true) {
  Window window = alike(4);
  window[1].*fact = value;
  window[1].cpu = 0.5;
  if (by_another) window[1].neighbour = Neighbour{.pid = 812, .name = "stress", .cpus = 0.5};
  return window;
}

TEST_CASE("of a program that says nothing of its steps the rank is named that the kernel keeps back alone") {
  const auto expect = [](const Window& window, const char* cause, const char* text) {
    Job job(4);
    job.tells_steps = false;
    const auto news = job.run(20, window);
    REQUIRE(news.size() == 1);
    CHECK(news[0].rank == 1);
    CHECK(news[0].cause == cause);
    CHECK(news[0].text == text);
    CHECK(news[0].loss == 0);
    CHECK_FALSE(news[0].serious);
    CHECK(job.run(20, alike(4)).size() == 1);
    CHECK_FALSE(job.watch.verdict().has_value());
  };
  expect(programs(&WindowPart::throttled, 0.5), "throttled",
         "rank 1 on node1 is kept back: its control group has used up its CPU quota (ran 0.50 s of each "
         "second)");
  expect(programs(&WindowPart::stopped, 1), "stopped",
         "rank 1 on node1 is kept back: a signal, or a debugger, has stopped it (for 1.00 s of each second)");
  expect(
      programs(&WindowPart::cpu_wait, 0.5), "shared_cores",
      "rank 1 on node1 is kept back: its cores are shared with \"stress\" (pid 812), and it ran 50 % of the "
      "time that it was ready to");
}

TEST_CASE("nobody is kept back where several are, where a rank's own threads share its cores, or by little") {
  for (auto fact : {&WindowPart::throttled, &WindowPart::cpu_wait}) {
    Window window = programs(fact, 0.5);
    window[3] = window[1], window[3].rank = 3, window[3].*fact = 0.3;
    CHECK_FALSE(judge_kernel_facts(window).has_value());
    CHECK_FALSE(judge_kernel_facts(programs(fact, 0.08)).has_value());
  }
  CHECK_FALSE(judge_kernel_facts(programs(&WindowPart::cpu_wait, 5, false)).has_value());
  CHECK_FALSE(judge_kernel_facts(alike(4)).has_value());
  CHECK_FALSE(judge_kernel_facts({}).has_value());
}

TEST_CASE("ranks of which some tell of their steps are judged by the kernel's facts") {
  Job job(2);
  StepTimes times;
  double wait = 0;
  std::vector<Verdict> news;
  for (int second = 0; second < 20; ++second) {
    job.pass(1000);
    times.steps += 50, times.math += 1, wait += 0.5;
    if (auto verdict = job.tell(0, times)) news.push_back(*verdict);
    const WorkerReport silent{.usage = WorkerUsage{.cpu = wait, .throttled = wait}};
    if (auto verdict = job.tell(1, silent)) news.push_back(*verdict);
  }
  REQUIRE(news.size() == 1);
  CHECK(news[0].rank == 1);
  CHECK(news[0].cause == "throttled");
}

TEST_CASE("fewer than the steps of a window tell nothing, however long they take") {
  Job job(4);
  CHECK(job.run(19, kSharedCores(4, 3), 1).empty());
  CHECK_FALSE(job.watch.verdict().has_value());
}

TEST_CASE("a rank whose numbers fall has no windows, and makes no other one slow") {
  Job job(2);
  StepTimes grows, falls{.math = 100};
  for (int second = 0; second < 30; ++second) {
    job.pass(1000);
    grows.steps += 40, grows.math += 0.5;
    falls.steps += 40, falls.math -= 0.5, falls.wait_peers += 1;
    CHECK_FALSE(job.tell(0, grows).has_value());
    CHECK_FALSE(job.tell(1, falls).has_value());
  }
}

TEST_CASE("a rank that says nothing leaves the others unjudged, and numbers that fall begin anew") {
  Job job(2);
  StepTimes times;
  for (int second = 0; second < 100; ++second) {
    times.steps += 50, times.math += 1;
    CHECK_FALSE(job.tell(0, times).has_value());
  }
  CHECK_FALSE(job.tell(7, times).has_value());
  CHECK_FALSE(job.tell(-1, times).has_value());
  times.math = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(job.tell(1, times).has_value());
  CHECK_FALSE(job.tell(1, {.steps = 5, .math = 1}).has_value());
  CHECK_FALSE(job.tell(1, {.steps = 5, .math = 0.5}).has_value());
  CHECK_FALSE(job.watch.verdict().has_value());
}

TEST_CASE("noise names nobody; a planted delay names its rank and no other, whatever the world") {
  std::mt19937 random(7);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const int world = 2 + static_cast<int>(random() % 15), late = static_cast<int>(random() % world);
    Job job(world);
    const auto noisy = [&](double more) {
      Window window = alike(world);
      double slowest = 0;
      for (WindowPart& part : window) {
        part.math *= between(0.96, 1.04);
        part.data *= between(0.5, 1.5);
        if (part.rank == late) part.math += more;
        slowest = std::max(slowest, part.math + part.data);
      }
      for (WindowPart& part : window) part.wait_peers = 0.001 + slowest - part.math - part.data;
      return window;
    };
    for (int second = 0; second < 40; ++second) CHECK(job.run(1, noisy(0)).empty());
    const double more = between(0.006, 0.1);
    std::vector<Verdict> news;
    for (int second = 0; second < 15; ++second)
      for (Verdict& verdict : job.run(1, noisy(more))) news.push_back(std::move(verdict));
    REQUIRE_FALSE(news.empty());
    for (const Verdict& verdict : news) CHECK(verdict.rank == late);
    REQUIRE(job.watch.verdict().has_value());
    CHECK(job.watch.verdict()->rank == late);
    CHECK(job.watch.verdict()->cause == "processor");
  }
}

// Ranks on a host each that exchange messages in every step, by the clock of each: seconds from its part's
// end until a message of `from` is with `to`.
Window on_a_network(int world, const std::function<double(int from, int to)>& delay) {
  constexpr int kSteps = 1000;
  constexpr double kWork = 0.02;
  const auto size = static_cast<std::size_t>(world);
  std::vector<double> now(size), total(size);
  Window window(size);
  for (int rank = 0; rank < world; ++rank) {
    WindowPart& part = window[static_cast<std::size_t>(rank)];
    part = {.rank = rank, .math = kWork};
    part.wait_for.resize(size);
    part.host = "node" + std::to_string(rank);
  }
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<double> begun = now;
    for (int rank = 0; rank < world; ++rank) {
      WindowPart& part = window[static_cast<std::size_t>(rank)];
      double& at = now[static_cast<std::size_t>(rank)];
      at += kWork;
      for (int turn = 0; turn < world; ++turn) {
        const int peer = (step + turn) % world;
        if (peer == rank) continue;
        const double there = begun[static_cast<std::size_t>(peer)] + kWork + delay(peer, rank);
        const double wait = std::max(0.0, there - at);
        part.wait_for[static_cast<std::size_t>(peer)] += wait / kSteps;
        part.wait_peers += wait / kSteps;
        at += wait;
      }
    }
  }
  return window;
}

TEST_CASE("a network that is alike for all is not named, however slow it is") {
  for (int world : {2, 3, 4, 8})
    for (double delay : {0.0002, 0.02}) {
      CAPTURE(world);
      CHECK_FALSE(judge_network(on_a_network(world, [&](int, int) { return delay; })).has_value());
    }
  CHECK_FALSE(judge_network({}).has_value());
  CHECK_FALSE(judge_network(alike(4)).has_value());
}

TEST_CASE(
    "the host of a slow cable is named, whether it sends late, receives late, or both, with what that "
    "costs") {
  for (int world : {3, 4, 8})
    for (int direction : {1, 2, 3}) {
      CAPTURE(world);
      CAPTURE(direction);
      const auto window = on_a_network(world, [&](int from, int to) {
        return (from == 1 && (direction & 1)) || (to == 1 && (direction & 2)) ? 0.02 : 0.0002;
      });
      const auto found = judge_network(window);
      REQUIRE(found.has_value());
      CHECK(found->who == "the network of node1");
      CHECK(found->verdict.rank == -1);
      CHECK(found->verdict.cause == "network");
      const double lost = direction == 3 ? 0.02 / 0.04 : 0.01 / 0.03;  // one way is late every second step
      CHECK(found->verdict.loss == doctest::Approx(lost).epsilon(0.15));
    }
}

TEST_CASE("a slow path between two hosts is told from a slow cable") {
  for (bool both : {false, true}) {
    CAPTURE(both);
    const auto window = on_a_network(4, [&](int from, int to) {
      return (from == 1 && to == 3) || (both && from == 3 && to == 1) ? 0.02 : 0.0002;
    });
    const auto found = judge_network(window);
    REQUIRE(found.has_value());
    CHECK(found->who == "the network between node1 and node3");
  }
}

TEST_CASE("ranks of one host are one end of the network") {
  auto window = on_a_network(6, [](int from, int to) {
    if (from / 2 == to / 2) return 0.0;
    return from / 2 == 1 || to / 2 == 1 ? 0.02 : 0.0002;
  });
  for (WindowPart& part : window) part.host = "node" + std::to_string(part.rank / 2);
  const auto found = judge_network(window);
  REQUIRE(found.has_value());
  CHECK(found->who == "the network of node1");
}

TEST_CASE("a slow rank is no slow network, and waits of another world's size tell nothing") {
  auto window = on_a_network(4, [](int, int) { return 0.0002; });
  for (WindowPart& part : window) {
    if (part.rank != 2) part.wait_for[2] += 0.01, part.wait_peers += 0.01;
    if (part.rank == 2) part.math += 0.01;
  }
  const auto found = judge_ranks(window);
  REQUIRE(found.has_value());
  CHECK(found->verdict.rank == 2);
  window[1].wait_for.pop_back();
  CHECK_FALSE(judge_network(window).has_value());
}

}  // namespace
}  // namespace dtrun::rendezvous
