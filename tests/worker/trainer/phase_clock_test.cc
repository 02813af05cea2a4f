#include "worker/trainer/phase_clock.h"

#include <doctest/doctest.h>

namespace dtrun::worker::phase_clock_test {
namespace {

using namespace std::chrono_literals;
using Phase = Progress::Phase;

const PhaseClock::Clock::time_point kBegin{};

}  // namespace

TEST_CASE("every moment is of the phase that was entered last") {
  PhaseClock clock(kBegin);
  clock.enter(Phase::kTraining, kBegin + 2s);
  CHECK(clock.enter(Phase::kEvaluating, kBegin + 5s) == Phase::kTraining);
  clock.enter(Phase::kSaving, kBegin + 6s);
  clock.enter(Phase::kTraining, kBegin + 6500ms);
  CHECK(clock.times(kBegin + 10s) ==
        PhaseTimes{.loading = 2, .training = 6.5, .evaluating = 1, .saving = 0.5});
}

TEST_CASE("a scope returns to the phase before it, and scopes nest") {
  PhaseClock clock;
  clock.enter(Phase::kTraining);
  {
    const PhaseClock::Scope evaluating(clock, Phase::kEvaluating);
    const PhaseClock::Scope saving(clock, Phase::kSaving);
    CHECK(clock.enter(Phase::kSaving) == Phase::kSaving);
  }
  CHECK(clock.enter(Phase::kLoading) == Phase::kTraining);
}

}  // namespace dtrun::worker::phase_clock_test
