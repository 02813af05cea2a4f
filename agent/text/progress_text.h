// Progress of the built-in trainer as text: a bar for a terminal, a line for a log. Pure, except that Pace
// remembers recent steps to guess the time left.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "proto/core/training.h"

namespace dtrun::agent {

// "loading", "training", "evaluating", "saving"
const char* name_of(Progress::Phase phase);

// "[=====>    ]  55 % 1290/2345  loss 0.312  9,800 samples/s  11 s left", narrower than `columns`.
std::string progress_bar(const Progress& progress, std::optional<double> seconds_left, int columns);

// "step 1290 of 2345 (55 %), loss 0.312, 9,800 samples/s, 11 s left"
std::string progress_line(const Progress& progress, std::optional<double> seconds_left);

// "9,812"
std::string grouped_text(double value);

// Time left from the pace of the last half minute, so that an evaluation or a pause fades out.
class Pace {
 public:
  // `now` in seconds of a steady clock.
  std::optional<double> seconds_left(std::int64_t step, std::int64_t total, double now);

 private:
  std::deque<std::pair<double, std::int64_t>> recent_;
};

}  // namespace dtrun::agent
