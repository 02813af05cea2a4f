#include "agent/text/run_summary.h"

#include <algorithm>
#include <cmath>

#include "agent/text/progress_text.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

std::string step_time_text(double seconds) {
  return seconds < 1 ? decimals(1000 * seconds, 1) + " ms" : decimals(seconds, 2) + " s";
}

std::string percent(double share) {
  return std::to_string(std::lround(100 * std::clamp(share, 0.0, 1.0))) + " %";
}

// "2 restarts, 1 membership change"
std::string interruptions(const RunSummary& summary) {
  std::string text;
  if (summary.restarts > 0) text = counted(summary.restarts, "restart");
  if (summary.membership_changes > 0)
    text += (text.empty() ? "" : ", ") + counted(summary.membership_changes, "membership change");
  return text;
}

std::string pace_line(const Completion& done, const RunSummary& summary) {
  std::string text = "\n  " + time_text(summary.seconds) + " in all";
  const std::int64_t steps = done.step - done.first_step;
  if (steps <= 0 || done.training_seconds <= 0) return text;
  const bool interrupted = !interruptions(summary).empty();
  return text + ", " + time_text(done.training_seconds) + " of it training" +
         (interrupted ? " since the last interruption: " : ": ") + grouped_text(done.samples_per_second) +
         " samples/s, " + step_time_text(done.training_seconds / static_cast<double>(steps)) + " a step";
}

std::string shares_line(const Completion& done) {
  if (done.training_seconds <= 0) return "";
  return "\n  of a step's time: " + percent(done.math) + " math, " + percent(done.wait_gradients) +
         " waiting for gradients, " + percent(done.wait_data) + " waiting for data, " + percent(done.other) +
         " other";
}

std::string memory_line(const Completion& done) {
  if (!done.memory) return "";
  return "\n  GPU memory: peak " + in_gibibytes(done.memory->peak) + " of " +
         in_gibibytes(done.memory->total);
}

}  // namespace

std::string done_line(const Completion& completion, const std::string& host) {
  std::string text = "done: " + std::to_string(completion.step) + " steps";
  if (completion.accuracy) text += ", test accuracy " + decimals(100 * *completion.accuracy, 1) + " %";
  text += ", loss " + decimals(completion.loss, 3);
  if (!completion.model_path.empty())
    text += ", model in " + completion.model_path + (host.empty() ? "" : " on " + host);
  return text;
}

std::string summary_text(const Completion& completion, const RunSummary& summary) {
  std::string text = done_line(completion, summary.host) + pace_line(completion, summary) +
                     shares_line(completion) + memory_line(completion);
  if (summary.goodput.total() > 0) text += "\n  " + goodput_text(summary.goodput);
  if (!summary.straggler.empty()) text += "\n  " + summary.straggler;
  const std::string interrupted = interruptions(summary);
  if (interrupted.empty()) return text;
  text += "\n  " + interrupted;
  const std::int64_t redone = summary.goodput.steps_redone;
  if (redone > 0) text += "; at least " + counted(redone, "step") + " done again";
  return text;
}

std::string program_summary_text(const RunSummary& summary) {
  if (summary.restarts == 0) return "";
  return "done: " + time_text(summary.seconds) + " in all, " + interruptions(summary);
}

}  // namespace dtrun::agent
