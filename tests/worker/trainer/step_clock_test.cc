#include "worker/trainer/step_clock.h"

#include <doctest/doctest.h>

#include <thread>

namespace dtrun::worker {
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

}  // namespace dtrun::worker
