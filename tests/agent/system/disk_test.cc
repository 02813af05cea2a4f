// The thread for file systems that may hang, with work that hangs until it is let go.
#include "agent/system/disk.h"

#include <doctest/doctest.h>

#include <future>
#include <string>

#include "tests/support/clock.h"

namespace dtrun::agent::disk_test {
namespace {

using namespace std::chrono_literals;

// Work that does not end before the test lets it.
class Hung {
 public:
  Hung() : gate_(gate_keeper_.get_future().share()) {}
  ~Hung() { let_go(); }

  std::function<void()> work() const {
    return [gate = gate_] { gate.wait(); };
  }
  void let_go() {
    if (!std::exchange(open_, true)) gate_keeper_.set_value();
  }

 private:
  std::promise<void> gate_keeper_;
  std::shared_future<void> gate_;
  bool open_ = false;
};

void run_until(Loop& loop, const std::function<bool()>& condition) {
  while (!condition()) {
    loop.call_at(Loop::Clock::now() + 10ms, [] {});
    REQUIRE(loop.run_once().ok());
  }
}

}  // namespace

TEST_CASE("work is done in order on a thread, and what follows from it on the loop") {
  Loop loop;
  Disk disk(loop);
  std::string done;
  const auto loops = std::this_thread::get_id();
  std::thread::id works;
  for (const char name : {'a', 'b', 'c'})
    disk.post([&works] { works = std::this_thread::get_id(); },
              [&done, name, loops] {
                CHECK(std::this_thread::get_id() == loops);
                done += name;
              });
  run_until(loop, [&] { return done.size() == 3; });
  CHECK(done == "abc");
  CHECK(disk.idle());
  CHECK(works != loops);
  int answer = 0;
  CHECK(disk.run([&answer] { answer = 42; }));
  CHECK(answer == 42);
}

TEST_CASE("work that hangs is waited for once, and all of it is done in the end") {
  Loop loop;
  Disk disk(loop);
  Hung hung;
  std::string done;
  disk.post(hung.work(), nullptr, 100);
  test::Stopwatch watch;
  const auto count = std::make_shared<std::atomic<int>>(0);
  CHECK_FALSE(disk.run([count] { ++*count; }));
  CHECK(watch.wall() >= Disk::kPatience);
  test::Stopwatch later;
  for (int i = 0; i < 100; ++i) CHECK_FALSE(disk.run([count] { ++*count; }));
  CHECK(later.fair() < Disk::kPatience);
  CHECK(*count == 0);
  CHECK_FALSE(disk.idle());
  CHECK(disk.queued() == 100);
  hung.let_go();
  run_until(loop, [&] { return disk.idle(); });
  CHECK(*count == 101);
  CHECK(disk.queued() == 0);
  CHECK(disk.run([count] { ++*count; }));  // waits again
  CHECK(*count == 102);
}

TEST_CASE("who leaves does not wait for work that hangs, and hears nothing of it") {
  Hung hung;
  Loop loop;
  bool heard = false;
  test::Stopwatch watch;
  {
    Disk disk(loop);
    disk.post(hung.work(), [&heard] { heard = true; });
    disk.post([] {}, [&heard] { heard = true; });
  }
  CHECK(watch.fair() < 1s);
  hung.let_go();
  loop.call_at(Loop::Clock::now() + 50ms, [] {});
  REQUIRE(loop.run_once().ok());
  CHECK_FALSE(heard);
}

}  // namespace dtrun::agent::disk_test
