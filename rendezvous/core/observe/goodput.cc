#include "rendezvous/core/observe/goodput.h"

#include <algorithm>
#include <cmath>

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
  // Who could tell of an adopted one may be gone. Workers load for a moment, and train for the rest.
  const bool loads = trainer && !time.adopted;
  if (!time.report) return loads ? PhaseTimes{.loading = ran} : PhaseTimes{.training = ran};
  PhaseTimes times =
      time.report->times ? bounded(*time.report->times, reported_at) : PhaseTimes{.training = reported_at};
  times.loading += reported_at - times.total();
  part_of(times, time.report->phase) += ran - reported_at;
  return times;
}

}  // namespace

Goodput with_generation(Goodput spent, const GenerationTime& time, bool trainer) {
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
  return spent;
}

double Goodput::*kind_of(const GenerationTime& time, std::int64_t best_step, bool trainer) {
  if (!time.report) return trainer ? &Goodput::loading : &Goodput::training;
  switch (time.report->phase) {
    case Progress::Phase::kLoading:
      return &Goodput::loading;
    case Progress::Phase::kEvaluating:
      return &Goodput::evaluating;
    case Progress::Phase::kSaving:
      return &Goodput::saving;
    case Progress::Phase::kTraining:
      break;
  }
  const bool again = time.report->first_step.value_or(-1) >= 0 && time.report->step < best_step;
  return again ? &Goodput::redone : &Goodput::training;
}

Goodput within_reason(Goodput goodput) {
  for (const GoodputKind& kind : kGoodputKinds) goodput.*kind.seconds = at_least_0(goodput.*kind.seconds);
  goodput.steps_redone = std::max<std::int64_t>(0, goodput.steps_redone);
  goodput.best_step = std::max<std::int64_t>(0, goodput.best_step);
  return goodput;
}

}  // namespace dtrun::rendezvous
