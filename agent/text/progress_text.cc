#include "agent/text/progress_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

constexpr double kPaceWindow = 30, kPaceFrom = 1;  // seconds; no guess from less time
constexpr int kBarWidth = 24, kNarrowestBar = 6;

// At most 100: a run that goes on from a checkpoint with a smaller max_steps is beyond its end.
int percent(const Progress& progress) {
  if (progress.total_steps <= 0) return 0;
  return static_cast<int>(std::min<std::int64_t>(100, 100 * progress.step / progress.total_steps));
}

std::string bar_of(int percent, int width) {
  const int filled = percent * width / 100;
  std::string bar = "[" + std::string(static_cast<std::size_t>(filled), '=');
  if (filled < width) bar += ">" + std::string(static_cast<std::size_t>(width - filled - 1), ' ');
  return bar + "]";
}

// The facts after the step count, joined by `separator`.
std::string facts(const Progress& progress, std::optional<double> seconds_left,
                  const std::string& separator) {
  std::string text;
  if (progress.loss) text += separator + "loss " + decimals(*progress.loss, 3);
  if (progress.phase != Progress::Phase::kTraining) return text + separator + name_of(progress.phase);
  if (progress.samples_per_second > 0)
    text += separator + grouped_text(progress.samples_per_second) + " samples/s";
  if (seconds_left) text += separator + duration_text(*seconds_left) + " left";
  return text;
}

}  // namespace

const char* name_of(Progress::Phase phase) {
  switch (phase) {
    case Progress::Phase::kLoading:
      return "loading";
    case Progress::Phase::kTraining:
      return "training";
    case Progress::Phase::kEvaluating:
      return "evaluating";
    case Progress::Phase::kSaving:
      return "saving";
  }
  return "training";
}

std::string grouped_text(double value) {
  return with_thousands(static_cast<std::uint64_t>(std::llround(std::max(0.0, value))));
}

std::string progress_bar(const Progress& progress, std::optional<double> seconds_left, int columns) {
  char count[64];
  std::snprintf(count, sizeof count, "%3d %%  %lld/%lld", percent(progress),
                static_cast<long long>(progress.step), static_cast<long long>(progress.total_steps));
  std::string text = count + facts(progress, seconds_left, "  ");
  // A bar that wraps cannot be cleared again.
  const int room = columns - 1, width = std::min(kBarWidth, room - static_cast<int>(text.size()) - 3);
  if (width >= kNarrowestBar) return bar_of(percent(progress), width) + " " + text;
  if (static_cast<int>(text.size()) > room) text.resize(static_cast<std::size_t>(std::max(0, room)));
  return text;
}

std::string progress_line(const Progress& progress, std::optional<double> seconds_left) {
  return "step " + std::to_string(progress.step) + " of " + std::to_string(progress.total_steps) + " (" +
         std::to_string(percent(progress)) + " %)" + facts(progress, seconds_left, ", ");
}

std::optional<double> Pace::seconds_left(std::int64_t step, std::int64_t total, double now) {
  if (!recent_.empty() && step < recent_.back().second) recent_.clear();  // the job went back to a checkpoint
  recent_.emplace_back(now, step);
  while (recent_.size() > 2 && now - recent_[1].first >= kPaceWindow) recent_.pop_front();
  const double time = now - recent_.front().first;
  const auto steps = step - recent_.front().second;
  if (steps <= 0 || time < kPaceFrom) return std::nullopt;
  return static_cast<double>(total - step) * time / static_cast<double>(steps);
}

}  // namespace dtrun::agent
