#include "worker/core/evaluation_record.h"

#include <doctest/doctest.h>

#include <cmath>

namespace dtrun::worker::evaluation_record_test {
namespace {

constexpr Better kByLoss{.by_accuracy = false, .greater = false};
constexpr Better kByAccuracy{.by_accuracy = true, .greater = true};

TEST_CASE("the best evaluation is kept with its step, and those after it are counted") {
  EvaluationRecord record;
  add_evaluation(record, 5, 2.0, 0.3, kByLoss);
  add_evaluation(record, 10, 1.0, 0.2, kByLoss);
  CHECK(record ==
        EvaluationRecord{.evaluated_step = 10, .best_step = 10, .best_loss = 1, .best_accuracy = 0.2});
  add_evaluation(record, 15, 1.0, 0.9, kByLoss);  // no better
  add_evaluation(record, 20, 1.5, 0.9, kByLoss);
  CHECK(record.best_step == 10);
  CHECK(record.without_improvement == 2);
  add_evaluation(record, 25, 0.5, 0.1, kByLoss);
  CHECK(record ==
        EvaluationRecord{.evaluated_step = 25, .best_step = 25, .best_loss = 0.5, .best_accuracy = 0.1});
}

TEST_CASE("the metric and its direction decide") {
  EvaluationRecord record;
  add_evaluation(record, 1, 1.0, 0.5, kByAccuracy);
  add_evaluation(record, 2, 0.5, 0.4, kByAccuracy);
  CHECK(record.best_step == 1);
  add_evaluation(record, 3, 2.0, 0.6, kByAccuracy);
  CHECK(record.best_step == 3);
  add_evaluation(record, 4, 3.0, 0.1, {.by_accuracy = false, .greater = true});
  CHECK(record.best_step == 4);
}

TEST_CASE("a step that was evaluated before counts once") {
  EvaluationRecord record;
  add_evaluation(record, 5, 1.0, 0.5, kByLoss);
  add_evaluation(record, 10, 2.0, 0.5, kByLoss);
  const EvaluationRecord before = record;
  add_evaluation(record, 10, 2.0, 0.5, kByLoss);
  CHECK(record == before);
}

TEST_CASE("what is not a number is never the best, and any number is better") {
  EvaluationRecord record;
  add_evaluation(record, 1, NAN, 0.1, kByLoss);
  CHECK(record.best_step == -1);
  CHECK(record.without_improvement == 1);
  add_evaluation(record, 2, 7.0, 0.1, kByLoss);
  CHECK(record.best_step == 2);
  add_evaluation(record, 3, NAN, 0.1, kByLoss);
  CHECK(record.best_step == 2);
  CHECK(record.without_improvement == 1);
  for (const double loss : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EvaluationRecord accurate;
    add_evaluation(accurate, 1, loss, 0.9, kByAccuracy);
    CHECK(accurate.best_step == -1);
    add_evaluation(accurate, 2, 1.0, 0.1, kByAccuracy);
    CHECK(accurate.best_step == 2);
  }
}

}  // namespace
}  // namespace dtrun::worker::evaluation_record_test
