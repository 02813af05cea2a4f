// Spares: workers of a program that have loaded and wait, and take the local rank of one that ends.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

using namespace dtrun::agent;
using namespace dtrun::agent::test;

namespace {

Settings with_spares(int spares, bool has_gpu_driver = false) {
  Settings settings = external(2);
  settings.in_memory_recovery = true;
  settings.spares = spares;
  settings.has_gpu_driver = has_gpu_driver;
  return settings;
}

// Workers #0 and #1 are ranks 2 and 3 of generation 1.
struct WithSpares : Scenario {
  explicit WithSpares(Settings settings) : Scenario(std::move(settings)) {}

  // Both work; the trace of the second one's start.
  Trace begin() {
    joins();
    for (const int local_rank : {0, 1}) happens(event::WorkerOutlives{serial(local_rank)});
    is_ready(0);
    Trace trace = is_ready(1);
    state.connection.heartbeat_at.reset();
    return trace;
  }
  int spare(std::size_t number = 0) const { return state.workers.spares.at(number).serial; }
  Trace waits(int serial) {
    happens(event::WorkerOutlives{serial});
    return happens(event::WorkerReady{.serial = serial, .step = {}, .error = {}});
  }
  Trace dies(int serial, double uptime_s = 1) {
    event::WorkerExited e;
    e.serial = serial;
    e.outcome.local_rank = 2;
    e.outcome.signal = SIGKILL;
    e.outcome.uptime_s = uptime_s;
    return happens(e);
  }
  Trace gets(std::int64_t g, int count) {
    Assignment assignment;
    assignment.generation = g;
    assignment.group_rank = 1;
    assignment.world_size = 2 + count;
    assignment.node_count = 2;
    assignment.node = {"b", "10.0.0.2", count, 2};
    assignment.restart_count = static_cast<int>(g) - 1;
    assignment.reason = "because";
    return happens(event::Assigned{assignment});
  }
};

}  // namespace

TEST_CASE(
    "a spare starts once all work, takes the rank of a worker that dies, and another starts behind it") {
  WithSpares s(with_spares(1));
  CHECK(s.begin() == Trace{"place #1 as r3", "warm up #2 (local 2, a spare)"});
  CHECK(s.state.workers.ready_spares() == 0);
  CHECK(s.waits(2).empty());
  CHECK(s.state.workers.ready_spares() == 1);
  CHECK(s.exits(0, 0, SIGKILL) == Trace{"failure r2 signal 9", "pause"});
  CHECK(s.is_ready(1, 41) == Trace{"heartbeat", "stopped [r2 signal 9] has 2"});
  CHECK(s.gets(2, 2) == Trace{"start g2 with the same workers", "place #2 as r2", "place #1 as r3",
                              "warm up #3 (local 2, a spare)", "heartbeat"});
  CHECK(s.serial(0) == 2);
  CHECK(s.trained(41, 42) == Trace{"recovered at 41, kept 1, replaced 1, took 0"});
  CHECK(s.dies(2).front() == "failure r2 signal 9");  // although its process began as local rank 2
}

TEST_CASE("workers that have not said that they outlive generations have no spares") {
  WithSpares s(with_spares(1));
  s.joins();
  s.happens(event::WorkerOutlives{s.serial(0)});
  CHECK(s.is_ready(0) == Trace{"place #0 as r2"});
  CHECK(s.state.workers.spares.empty());
}

TEST_CASE("workers of a unit, which are replaced as one, have no spares") {
  WithSpares s(with_spares(1));
  s.joins();
  for (const int local_rank : {0, 1})
    s.happens(event::WorkerOutlives{.serial = s.serial(local_rank), .unit = 2});
  s.is_ready(0);
  s.is_ready(1);
  CHECK(s.state.workers.at_work() == 2);
  CHECK(s.state.workers.spares.empty());
}

TEST_CASE("a spare that still loads takes the place of a worker that dies, which gets no other replacement") {
  WithSpares s(with_spares(1));
  s.begin();
  s.exits(0, 0, SIGKILL);
  CHECK(s.is_ready(1, 41) == Trace{"heartbeat", "stopped [r2 signal 9] has 1"});
  CHECK(s.gets(2, 1) == Trace{"start g2 with the same workers", "place #1 as r2", "heartbeat"});
  CHECK(s.waits(2) == Trace{"ready"});
  s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true});
  s.is_ready(1, 60);
  CHECK(s.gets(3, 2) == Trace{"start g3 with the same workers", "place #2 as r2", "place #1 as r3",
                              "warm up #3 (local 2, a spare)", "heartbeat"});
}

TEST_CASE("a spare that gets ready after the generation was closed is told of, and taken in") {
  WithSpares s(with_spares(1));
  s.begin();
  s.exits(0, 0, SIGKILL);
  CHECK(s.is_ready(1, 41).back() == "stopped [r2 signal 9] has 1");
  CHECK(s.waits(2) == Trace{"ready"});
  CHECK(s.gets(2, 2) == Trace{"start g2 with the same workers", "place #2 as r2", "place #1 as r3",
                              "warm up #3 (local 2, a spare)", "heartbeat"});
}

TEST_CASE("two workers die: both spares take their places") {
  WithSpares s(with_spares(2));
  CHECK(s.begin() == Trace{"place #1 as r3", "warm up #2 (local 2, a spare) #3 (local 3, a spare)"});
  CHECK(s.waits(3).empty());
  CHECK(s.waits(2).empty());
  s.exits(0, 0, SIGKILL);
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"heartbeat", "stopped [r2 signal 9] [r3 signal 9] has 2"});
  CHECK(s.gets(2, 2) == Trace{"start g2 with the same workers", "place #2 as r2", "place #3 as r3",
                              "warm up #4 (local 2, a spare) #5 (local 3, a spare)", "heartbeat"});
}

TEST_CASE("one of two spares is left: only the other's number is taken again") {
  WithSpares s(with_spares(2));
  s.begin();
  s.waits(3);
  s.exits(0, 0, SIGKILL);
  s.is_ready(1, 41);
  CHECK(s.gets(2, 2) == Trace{"start g2 with the same workers", "place #3 as r2", "place #1 as r3",
                              "warm up #4 (local 3, a spare)", "heartbeat"});
}

TEST_CASE("a spare that dies disturbs nobody; the more die in a row, the longer the next one waits") {
  WithSpares s(with_spares(1));
  s.begin();
  s.waits(2);
  CHECK(s.dies(2) == Trace{"warm up #3 (local 2, a spare)"});
  CHECK(printed(s, "a spare of this node ended with signal 9 (SIGKILL); starting another"));
  CHECK(s.dies(3).empty());
  CHECK(s.printed.back() == "a spare of this node ended with signal 9 (SIGKILL); starting another in 1 s");
  CHECK(s.passes(999).empty());
  CHECK(s.passes(1000) == Trace{"warm up #4 (local 2, a spare)"});
  for (int serial = 4; serial < 12; ++serial) {
    s.dies(serial);
    s.passes(s.now + 30000);
  }
  CHECK(s.printed.back() == "a spare of this node ended with signal 9 (SIGKILL); starting another in 30 s");
  SUBCASE("unless it had lived") {
    CHECK(s.dies(12, 29.9).empty());
    s.passes(s.now + 30000);
    CHECK(s.dies(13, 30) == Trace{"warm up #14 (local 2, a spare)"});
  }
  SUBCASE("unless one has taken a place") {
    s.waits(12);
    s.exits(0, 0, SIGKILL);
    s.is_ready(1, 41);
    s.gets(2, 2);
    CHECK(s.dies(13) == Trace{"warm up #14 (local 2, a spare)"});
  }
}

TEST_CASE("no spare is started while the one before is not to be tried again yet") {
  WithSpares s(with_spares(1));
  s.begin();
  s.dies(2);
  s.dies(3);
  s.exits(0, 0, SIGKILL);
  s.is_ready(1, 41);
  CHECK(s.gets(2, 1) == Trace{"start g2 #4 (local 0, r2)", "place #1 as r2", "heartbeat"});
  CHECK(s.passes(1000).empty());
  s.waits(4);
  s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true});
  s.is_ready(1, 60);
  CHECK(s.gets(3, 2).at(3) == "warm up #5 (local 2, a spare)");
}

TEST_CASE("a spare that dies while its peers pause is replaced with the next generation") {
  WithSpares s(with_spares(1));
  s.begin();
  s.waits(2);
  s.happens(event::StopOrder{1, "a was lost"});
  CHECK(s.dies(2).empty());
  s.is_ready(0, 41);
  CHECK(s.is_ready(1, 41).back() == "stopped has 2");
  CHECK(s.gets(2, 2).at(3) == "warm up #3 (local 2, a spare)");
}

TEST_CASE("workers that hold the state go before a spare that waits, and no more than work are told of") {
  WithSpares s(with_spares(1));
  s.begin();
  s.waits(2);
  s.happens(event::StopOrder{.generation = 1, .reason = "c joined", .after_step = true});
  s.is_ready(0, 41);
  CHECK(s.is_ready(1, 41) == Trace{"heartbeat", "stopped has 2"});
  CHECK(s.gets(2, 2) ==
        Trace{"start g2 with the same workers", "place #0 as r2", "place #1 as r3", "heartbeat"});
}

TEST_CASE("a spare that says twice that it waits stops nobody") {
  WithSpares s(with_spares(1));
  s.begin();
  s.waits(2);
  CHECK(s.happens(event::WorkerReady{.serial = 2, .step = {}, .error = "what"}).empty());
  CHECK_FALSE(s.state.generation.stopping);
  CHECK_FALSE(s.state.generation.broken_at);
}

TEST_CASE("spares end with the job, which waits for them") {
  WithSpares s(with_spares(1));
  s.begin();
  s.waits(2);
  SUBCASE("that is complete") {
    s.exits(0, 0);
    CHECK(s.exits(1, 0) == Trace{"heartbeat", "finished g1"});
    CHECK(s.happens(job_end(0)) == Trace{"signal 15"});
    CHECK(s.dies(2) == Trace{"end 0"});
  }
  SUBCASE("that is told to end") {
    CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"pause after step"});
    s.is_ready(0, 41);
    CHECK(s.is_ready(1, 41) == Trace{"signal 15"});
    s.exits(0, 75);
    s.exits(1, 75);
    CHECK(s.dies(2) == Trace{"leave 15", "end 143"});
  }
  CHECK(s.state.workers.spares.empty());
}

TEST_CASE("spares wait for GPUs as all processes do, and end if a signal comes before") {
  WithSpares s(with_spares(1, true));
  s.joins();
  s.happens(event::GpusFree{});
  for (const int local_rank : {0, 1}) s.happens(event::WorkerOutlives{s.serial(local_rank)});
  s.is_ready(0);
  CHECK(s.is_ready(1) == Trace{"place #1 as r3", "await gpus"});
  SUBCASE("they are free") { CHECK(s.happens(event::GpusFree{}) == Trace{"warm up #2 (local 2, a spare)"}); }
  SUBCASE("the job ends") {
    s.happens(job_end(69));
    CHECK(s.state.workers.spares.empty());
  }
}
