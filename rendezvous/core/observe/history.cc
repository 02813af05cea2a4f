#include "rendezvous/core/observe/history.h"

#include <algorithm>
#include <iterator>

namespace dtrun::rendezvous {

std::int64_t History::next(Millis now) {
  if (serial_ == 0) began_ = now;
  return ++serial_;
}

void History::add(Curve curve, std::int64_t step, double value, Millis now) {
  curves_[static_cast<std::size_t>(curve)].add(
      {.step = step, .value = value, .at = now, .serial = next(now)});
}

// A generation may begin again before the steps that are known.
void History::add(const Progress& progress, std::int64_t generation, Millis now) {
  if (generation != generation_) {
    generation_ = generation;
    logged_ = saved_ = 0;
    evaluated_ = -1;
  }
  step_ = progress.step;
  for (const LoggedStep& line : progress.logged) {
    if (line.step <= logged_) continue;
    logged_ = line.step;
    add(Curve::kLoss, line.step, line.loss, now);
    add(Curve::kLearningRate, line.step, line.learning_rate, now);
    add(Curve::kGradNorm, line.step, line.grad_norm, now);
    add(Curve::kSamplesPerSecond, line.step, line.samples_per_second, now);
  }
  // A program that has no metrics of its own but says how far it is.
  if (!progress.times && progress.loss && progress.step > logged_) {
    logged_ = progress.step;
    add(Curve::kLoss, progress.step, *progress.loss, now);
  }
  if (progress.evaluated && progress.evaluated->step > evaluated_) {
    evaluated_ = progress.evaluated->step;
    add(Curve::kEvalLoss, evaluated_, progress.evaluated->loss, now);
    add(Curve::kEvalAccuracy, evaluated_, progress.evaluated->accuracy, now);
  }
  if (progress.saved_step > saved_) {
    saved_ = progress.saved_step;
    note_event("checkpoint", "", saved_, now);
  }
}

void History::tell(const char* kind, const std::string& text, std::int64_t generation, Millis now) {
  if (generation != generation_) add(Progress{.step = step_}, generation, now);
  note_event(kind, text, step_, now);
}

void History::note_event(const char* kind, const std::string& text, std::int64_t step, Millis now) {
  events_.push_back(
      {.serial = next(now), .at = now, .kind = kind, .text = text, .generation = generation_, .step = step});
  if (events_.size() > kMostEvents) events_.pop_front();
}

History History::newer_than(std::int64_t serial) const {
  History newer;
  newer.serial_ = serial_;
  newer.began_ = began_;
  for (std::size_t i = 0; i < kCurves; ++i) newer.curves_[i] = curves_[i].newer_than(serial);
  std::ranges::copy_if(events_, std::back_inserter(newer.events_),
                       [serial](const Occurrence& event) { return event.serial > serial; });
  return newer;
}

std::size_t History::points() const {
  std::size_t count = 0;
  for (const Series& curve : curves_) count += curve.points().size();
  return count;
}

}  // namespace dtrun::rendezvous
