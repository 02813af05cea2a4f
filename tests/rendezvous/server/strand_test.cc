// The order of a strand's tasks. The waits have no limit: ctest ends a test that hangs.
#include "rendezvous/server/strand.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::rendezvous::strand_test {
namespace {

constexpr std::int64_t kNothingDue = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("tasks run one at a time, those of each thread in the order in which it posted them") {
  constexpr int kThreads = 4, kTasks = 20000;
  std::vector<std::vector<int>> ran(kThreads);
  int running = 0, at_once = 0, tended = 0;  // unguarded: the strand is what guards them
  Strand strand;
  strand.start([&] { return ++tended, kNothingDue; });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i)
        strand.post([&, thread, i] {
          at_once += ++running > 1;
          ran[static_cast<std::size_t>(thread)].push_back(i);
          --running;
        });
    });
  for (std::thread& thread : threads) thread.join();
  strand.stop();
  CHECK(at_once == 0);
  CHECK(tended > 0);
  for (const std::vector<int>& order : ran) {
    REQUIRE(order.size() == kTasks);
    CHECK(std::is_sorted(order.begin(), order.end()));
  }
}

TEST_CASE("a task that a task posts runs after it, and before the strand is tended again") {
  std::vector<std::string> ran;
  Strand strand;
  strand.start([&] { return ran.emplace_back("tend"), kNothingDue; });
  strand.post([&] {
    strand.post([&] { ran.emplace_back("inner"); });
    ran.emplace_back("outer");
  });
  strand.stop();
  CHECK(ran == std::vector<std::string>{"outer", "tend", "inner", "tend"});
}

TEST_CASE("what is handed over does not run inside that call, and keeps its place") {
  std::vector<std::string> ran;
  std::promise<std::thread::id> where;
  Strand strand;
  strand.start([] { return kNothingDue; });
  strand.post([&] {
    strand.hand_over([&] {
      ran.emplace_back("second");
      where.set_value(std::this_thread::get_id());
    });
    ran.emplace_back("first");
  });
  auto ran_on = where.get_future();
  ran_on.wait();  // for the thread that was at work
  CHECK(ran == std::vector<std::string>{"first", "second"});
  for (int i = 0; i < 100; ++i) {
    std::promise<std::thread::id> idle;
    auto other = idle.get_future();
    strand.hand_over([&] { idle.set_value(std::this_thread::get_id()); });
    CHECK(other.get() != std::this_thread::get_id());
  }
}

TEST_CASE("what is due is done though nobody posts, also when it is due earlier than it was") {
  std::promise<void> first, second;
  bool again = false;
  std::int64_t due = kNothingDue;
  Strand strand;
  strand.start([&] {
    if (steady_now() < due) return due;
    (again ? second : first).set_value();
    again = true;
    return due = kNothingDue;
  });
  strand.post([&] { due = steady_now() + 20; });
  first.get_future().wait();
  // Once a task runs here, the thread that did the due work waits for the next.
  std::atomic<bool> here{false};
  while (!here) {
    strand.post([&, self = std::this_thread::get_id()] {
      due = steady_now() + 3600'000;
      here = std::this_thread::get_id() == self;
    });
  }
  strand.post([&] { due = steady_now() + 20; });
  second.get_future().wait();
}

TEST_CASE("what falls due while a task runs is done after it") {
  int done = 0;
  std::int64_t due = kNothingDue;
  bool inside = false, interrupted = false;
  Strand strand;
  strand.start([&] {
    interrupted |= inside;
    if (steady_now() < due) return due;
    ++done;
    return due = kNothingDue;
  });
  strand.post([&] { due = steady_now() + 10; });
  strand.post([&] {
    inside = true;
    if (due != kNothingDue)
      while (steady_now() < due + 20) std::this_thread::yield();
    inside = false;
  });
  strand.stop();
  CHECK(done == 1);
  CHECK_FALSE(interrupted);
}

TEST_CASE("what is posted after the end is dropped") {
  bool ran = false;
  Strand strand;
  strand.start([] { return kNothingDue; });
  strand.stop();
  strand.post([&] { ran = true; });
  CHECK_FALSE(ran);
}

}  // namespace dtrun::rendezvous::strand_test
