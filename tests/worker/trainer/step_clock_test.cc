#include "worker/trainer/step_clock.h"

#include <doctest/doctest.h>

#include <thread>

namespace dtrun::worker::step_clock_test {
namespace {

using namespace std::chrono_literals;

void spend(StepClock& clock, StepClock::Part part, std::chrono::milliseconds time) {
  StepClock::Scope timed(clock, part);
  std::this_thread::sleep_for(time);
}

}  // namespace

TEST_CASE("a lap has the shares of its own time, all laps together those of the whole") {
  StepClock clock;
  CHECK(clock.whole().seconds == 0);
  spend(clock, StepClock::kMath, 60ms);
  spend(clock, StepClock::kGradients, 20ms);
  const StepClock::Shares first = clock.lap();
  spend(clock, StepClock::kData, 40ms);
  std::this_thread::sleep_for(40ms);
  const StepClock::Shares second = clock.lap();
  CHECK(second.math == 0);
  CHECK(second.data >= 0.04 / second.seconds);
  const StepClock::Shares whole = clock.whole();
  CHECK(whole.seconds == doctest::Approx(first.seconds + second.seconds));
  CHECK(whole.math * whole.seconds == doctest::Approx(first.math * first.seconds));
  CHECK(whole.gradients * whole.seconds == doctest::Approx(first.gradients * first.seconds));
  CHECK(whole.data * whole.seconds == doctest::Approx(second.data * second.seconds));
  CHECK(whole.math + whole.gradients + whole.data + whole.other == doctest::Approx(1));
  CHECK(whole.math * whole.seconds >= 0.06);
  CHECK(whole.other * whole.seconds >= 0.04);
}

TEST_CASE("what is left out of a lap is left out of the whole, and a lap that has not ended is not in it") {
  StepClock clock;
  spend(clock, StepClock::kMath, 5ms);
  const auto begin = StepClock::Clock::now();
  std::this_thread::sleep_for(200ms);
  clock.leave_out_since(begin);
  const StepClock::Shares lap = clock.lap();
  std::this_thread::sleep_for(50ms);
  CHECK(clock.whole().seconds == lap.seconds);
  CHECK(lap.seconds < std::chrono::duration<double>(StepClock::Clock::now() - begin).count());
  CHECK(lap.math > 0);
}

TEST_CASE("the times since the beginning only grow, over laps and what is left out of them, and add up") {
  StepClock clock;
  const auto begun = StepClock::Clock::now();
  clock.add({.math = 30ms, .data = 10ms}, 3);
  std::this_thread::sleep_for(60ms);
  const StepTimes first = clock.times(1);
  CHECK(first.steps == 1);
  CHECK(first.microbatches == 3);
  CHECK(first.math == doctest::Approx(0.03));
  CHECK(first.data == doctest::Approx(0.01));
  CHECK(first.other >= 0.02);
  clock.lap();
  const auto begin = StepClock::Clock::now();
  std::this_thread::sleep_for(100ms);
  clock.leave_out_since(begin);
  std::this_thread::sleep_for(10ms);
  clock.add({.math = 5ms}, 3);
  spend(clock, StepClock::kGradients, 20ms);
  const StepTimes second = clock.times(2);
  CHECK(second.microbatches == 6);
  CHECK(second.math == doctest::Approx(0.035));
  CHECK(second.data == doctest::Approx(0.01));
  CHECK(second.wait_peers >= 0.02);
  CHECK(second.other >= first.other);
  const double all = second.math + second.data + second.wait_peers + second.other;
  CHECK(all < std::chrono::duration<double>(StepClock::Clock::now() - begun).count() - 0.09);
}

}  // namespace dtrun::worker::step_clock_test
