// Finds the best evaluation, and the end of a run that gets no better, as the config asks: its options for
// worker/core/evaluation_record.h.
#pragma once

#include "worker/config/config.h"
#include "worker/core/evaluation_record.h"

namespace dtrun::worker {

inline bool looks_for_best(const TrainConfig& config) {
  return config.load_best_model_at_end || config.early_stopping_patience > 0;
}

inline Better better_of(const TrainConfig& config) {
  const bool by_accuracy = config.metric_for_best_model == BestMetric::kAccuracy;
  return {.by_accuracy = by_accuracy, .greater = config.greater_is_better.value_or(by_accuracy)};
}

inline bool stops_early(const TrainConfig& config, const EvaluationRecord& record) {
  return config.early_stopping_patience > 0 && record.without_improvement >= config.early_stopping_patience;
}

}  // namespace dtrun::worker
