#include "rendezvous/core/observe/history.h"

#include <algorithm>
#include <iterator>

#include "proto/core/text.h"

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

void History::tell_failure(const std::string& text, const WorkerOutcome* first, std::int64_t generation,
                           Millis now) {
  tell("failure", text, generation, now);
  if (first == nullptr) return;
  Occurrence& failure = events_.back();
  failure.rank = first->rank;
  std::vector<std::string> words = first->stderr_tail;
  if (!first->error.empty()) words.insert(words.begin(), first->error);
  failure.words = shortened(join(words, "\n"), kMostWords);
}

void History::add_column(const std::vector<int>& ratios, std::int64_t generation, Millis now) {
  columns_.push_back({.serial = next(now), .at = now, .generation = generation, .ratios = ratios});
  const std::size_t most = kMostRatios / std::max<std::size_t>(1, ratios.size());
  while (columns_.size() > std::clamp<std::size_t>(most, 1, kMostColumns)) columns_.pop_front();
}

void History::spend(const GoodputKind* kind, Millis now) {
  if (life_.note(kind, now)) life_serial_ = next(now);
}

Occurrence& History::note_event(const char* kind, const std::string& text, std::int64_t step, Millis now) {
  events_.push_back(
      {.serial = next(now), .at = now, .kind = kind, .text = text, .generation = generation_, .step = step});
  if (events_.size() > kMostEvents) events_.pop_front();
  return events_.back();
}

History History::newer_than(std::int64_t serial) const {
  History newer;
  newer.serial_ = serial_;
  newer.began_ = began_;
  for (std::size_t i = 0; i < kCurves; ++i) newer.curves_[i] = curves_[i].newer_than(serial);
  const auto is_newer = [serial](const auto& one) { return one.serial > serial; };
  std::ranges::copy_if(events_, std::back_inserter(newer.events_), is_newer);
  std::ranges::copy_if(columns_, std::back_inserter(newer.columns_), is_newer);
  if (life_serial_ > serial) newer.life_ = life_;
  return newer;
}

std::size_t History::points() const {
  std::size_t count = life_.spans().size() * sizeof(LifeSpan) / sizeof(Point);
  for (const Series& curve : curves_) count += curve.points().size();
  for (const HeatColumn& column : columns_) count += column.ratios.size() * sizeof(int) / sizeof(Point) + 1;
  return count;
}

}  // namespace dtrun::rendezvous
