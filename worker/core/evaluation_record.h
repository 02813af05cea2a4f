// The results of a run's evaluations so far, and the best of them. A function of the evaluations alone, so
// that every rank decides the same, and a run that goes on after a pause decides as if it had never paused.
#pragma once

#include <cmath>
#include <cstdint>

namespace dtrun::worker {

struct EvaluationRecord {
  std::int64_t evaluated_step = -1;  // of the newest evaluation; -1: none yet
  std::int64_t best_step = -1;       // -1: none yet, or nobody looks for the best
  double best_loss = 0, best_accuracy = 0;
  std::int64_t without_improvement = 0;  // evaluations since the best
  bool operator==(const EvaluationRecord&) const = default;
};

struct Better {
  bool by_accuracy = false;  // else by loss
  bool greater = false;      // else less
  bool operator==(const Better&) const = default;
  bool operator()(double value, double than) const { return greater ? value > than : value < than; }
};

// Adds an evaluation; one of a step that is recorded already changes nothing. A model whose loss is not
// finite is never the best, whatever its accuracy. An equal value is no improvement.
inline void add_evaluation(EvaluationRecord& record, std::int64_t step, double loss, double accuracy,
                           const Better& better) {
  if (step == record.evaluated_step) return;
  record.evaluated_step = step;
  const double value = better.by_accuracy ? accuracy : loss;
  const double best = better.by_accuracy ? record.best_accuracy : record.best_loss;
  const bool sound = std::isfinite(loss) && value == value;
  if (sound && (record.best_step < 0 || better(value, best))) {
    record.best_step = step, record.best_loss = loss, record.best_accuracy = accuracy;
    record.without_improvement = 0;
  } else {
    ++record.without_improvement;
  }
}

}  // namespace dtrun::worker
