#include "rendezvous/core/run/goodput.h"

#include <algorithm>
#include <cmath>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {
namespace {

double seconds(Millis time) { return static_cast<double>(time) / 1000; }

// False for NaN, too.
double at_least_0(double value) { return value > 0 && std::isfinite(value) ? value : 0; }

// Another host's clock measured them, and what an agent says is not believed blindly: at most `limit` in all.
PhaseTimes bounded(const PhaseTimes& told, double limit) {
  PhaseTimes times{.loading = at_least_0(told.loading),
                   .training = at_least_0(told.training),
                   .evaluating = at_least_0(told.evaluating),
                   .saving = at_least_0(told.saving)};
  const double total = times.total();
  if (total <= limit) return times;
  for (double* part : {&times.loading, &times.training, &times.evaluating, &times.saving})
    *part *= limit / total;
  return times;
}

PhaseTimes times_of(const GenerationTime& time, bool trainer) {
  const double ran = seconds(time.ran), reported_at = seconds(time.reported_at);
  if (!time.report) return trainer ? PhaseTimes{.loading = ran} : PhaseTimes{.training = ran};
  PhaseTimes times =
      time.report->times ? bounded(*time.report->times, reported_at) : PhaseTimes{.training = reported_at};
  times.loading += reported_at - times.total();
  part_of(times, time.report->phase) += ran - reported_at;
  return times;
}

// Adds the generation's time. Of the steps that it did, those up to spent.best_step had been done before.
void add(const GenerationTime& time, bool trainer, Goodput& spent) {
  const PhaseTimes times = times_of(time, trainer);
  double redone = 0;
  const bool counts_steps = time.report && time.report->first_step.value_or(-1) >= 0;
  if (counts_steps && time.report->step > *time.report->first_step) {
    const std::int64_t first = *time.report->first_step, step = time.report->step;
    const std::int64_t again = std::max<std::int64_t>(0, std::min(step, spent.best_step) - first);
    redone = times.training * static_cast<double>(again) / static_cast<double>(step - first);
    spent.steps_redone += again;
    spent.best_step = std::max(spent.best_step, step);
  }
  spent.loading += times.loading;
  spent.training += times.training - redone;
  spent.redone += redone;
  spent.evaluating += times.evaluating;
  spent.saving += times.saving;
}

// REQUIRES: the run has a member's settings, is not over, and no generation runs.
double& kind_of(const State& state, Goodput& spent) {
  if (state.phase == Phase::kStopping) {
    const Cause cause = state.current.cause;
    return cause == Cause::kNewcomer || cause == Cause::kWorkersBack ? spent.rendezvous : spent.down;
  }
  if (state.deadlines.restart != kNever) return spent.down;
  return state.members.size() < state.settings->min_nodes ? spent.waiting : spent.rendezvous;
}

// Charges the time since state.charged_until to one of the two.
void charge(const State& state, Millis now, Goodput& spent, GenerationTime& generation) {
  const Millis passed = now - state.charged_until;
  if (!state.settings || state.phase == Phase::kOver || passed <= 0) return;
  if (state.phase == Phase::kRunning)
    generation.ran += passed;
  else
    kind_of(state, spent) += seconds(passed);
}

}  // namespace

void charge(State& state, Millis now) {
  charge(state, now, state.spent, state.current.time);
  state.charged_until = std::max(now, state.charged_until);
}

Goodput goodput_of(const State& state, Millis now) {
  Goodput spent = state.spent;
  GenerationTime generation = state.current.time;
  charge(state, now, spent, generation);
  if (state.settings) add(generation, state.settings->command.empty(), spent);
  return spent;
}

Goodput within_reason(Goodput goodput) {
  for (const GoodputKind& kind : kGoodputKinds) goodput.*kind.seconds = at_least_0(goodput.*kind.seconds);
  goodput.steps_redone = std::max<std::int64_t>(0, goodput.steps_redone);
  goodput.best_step = std::max<std::int64_t>(0, goodput.best_step);
  return goodput;
}

}  // namespace dtrun::rendezvous
