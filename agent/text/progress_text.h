// Progress of the built-in trainer as text: a bar for a terminal, a line for a log. Pure, except that Pace
// remembers recent steps to guess the time left.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::agent {

struct ProgressPoint {
  enum class Phase { kLoading, kTraining, kEvaluating, kSaving };
  Phase phase = Phase::kLoading;
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch = 0;  // fractional
  double learning_rate = 0;
  std::optional<double> loss;  // none before the first step since a start or restart
  double samples_per_second = 0;
  double accuracy = -1;  // negative: none yet
  std::optional<double> seconds_left;
};

// "loading", "training", "evaluating", "saving"
const char* phase_name(ProgressPoint::Phase phase);

// "[=====>    ]  55 % 1290/2345  loss 0.312  9,800 samples/s  11 s left", narrower than `columns`.
std::string progress_bar(const ProgressPoint& point, int columns);

// "step 1290 of 2345 (55 %), loss 0.312, 9,800 samples/s, 11 s left"
std::string progress_line(const ProgressPoint& point);

// "9,812"
std::string grouped_text(double value);

// "45 s", "3 min 20 s", "2 h 05 min"
std::string duration_text(double seconds);

// Time left from the pace of the last half minute, so that an evaluation or a pause fades out.
class Pace {
 public:
  // `now` in seconds of a steady clock.
  std::optional<double> seconds_left(std::int64_t step, std::int64_t total, double now);

 private:
  std::deque<std::pair<double, std::int64_t>> recent_;
};

}  // namespace dtrun::agent
