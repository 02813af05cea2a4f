#include "worker/trainer/step_clock.h"

#include <doctest/doctest.h>

namespace dtrun::worker::step_clock_test {
namespace {

using namespace std::chrono_literals;

// Goes on when a test says so.
struct MadeUpClock {
  using duration = std::chrono::milliseconds;
  using time_point = std::chrono::time_point<MadeUpClock>;
  static time_point now() { return time; }
  static inline time_point time{duration(12345)};
};
using Clock = StepClockOf<MadeUpClock>;

void pass(std::chrono::milliseconds time) { MadeUpClock::time += time; }

void spend(Clock& clock, Clock::Part part, std::chrono::milliseconds time) {
  Clock::Scope timed(clock, part);
  pass(time);
}

}  // namespace

TEST_CASE("a lap has the shares of its own time, all laps together those of the whole") {
  Clock clock;
  CHECK(clock.whole().seconds == 0);
  spend(clock, Clock::kMath, 60ms);
  spend(clock, Clock::kGradients, 20ms);
  const Clock::Shares first = clock.lap();
  CHECK(first.seconds == doctest::Approx(0.08));
  CHECK(first.math == doctest::Approx(0.75));
  CHECK(first.gradients == doctest::Approx(0.25));
  spend(clock, Clock::kData, 30ms);
  pass(90ms);
  const Clock::Shares second = clock.lap();
  CHECK(second.seconds == doctest::Approx(0.12));
  CHECK(second.math == 0);
  CHECK(second.data == doctest::Approx(0.25));
  CHECK(second.other == doctest::Approx(0.75));
  const Clock::Shares whole = clock.whole();
  CHECK(whole.seconds == doctest::Approx(0.2));
  CHECK(whole.math == doctest::Approx(0.3));
  CHECK(whole.gradients == doctest::Approx(0.1));
  CHECK(whole.data == doctest::Approx(0.15));
  CHECK(whole.other == doctest::Approx(0.45));
}

TEST_CASE("what is left out of a lap is left out of the whole, and a lap that has not ended is not in it") {
  Clock clock;
  spend(clock, Clock::kMath, 5ms);
  const MadeUpClock::time_point begin = MadeUpClock::now();
  pass(200ms);
  clock.leave_out_since(begin);
  pass(15ms);
  const Clock::Shares lap = clock.lap();
  pass(50ms);
  CHECK(lap.seconds == doctest::Approx(0.02));
  CHECK(lap.math == doctest::Approx(0.25));
  CHECK(clock.whole().seconds == lap.seconds);
}

TEST_CASE("the times since the beginning only grow, over laps and what is left out of them, and add up") {
  Clock clock;
  clock.add({.math = 30ms, .data = 10ms}, 3);
  pass(60ms);
  const StepTimes first = clock.times(1);
  CHECK(first.steps == 1);
  CHECK(first.microbatches == 3);
  CHECK(first.math == doctest::Approx(0.03));
  CHECK(first.data == doctest::Approx(0.01));
  CHECK(first.wait_peers == 0);
  CHECK(first.other == doctest::Approx(0.02));
  clock.lap();
  const MadeUpClock::time_point begin = MadeUpClock::now();
  pass(100ms);
  clock.leave_out_since(begin);
  pass(10ms);
  clock.add({.math = 5ms}, 3);
  spend(clock, Clock::kGradients, 20ms);
  const StepTimes second = clock.times(2);
  CHECK(second.steps == 2);
  CHECK(second.microbatches == 6);
  CHECK(second.math == doctest::Approx(0.035));
  CHECK(second.data == doctest::Approx(0.01));
  CHECK(second.wait_peers == doctest::Approx(0.02));
  CHECK(second.other == doctest::Approx(0.025));
}

}  // namespace dtrun::worker::step_clock_test
