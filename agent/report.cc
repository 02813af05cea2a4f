#include "agent/report.h"

#include <cstdio>
#include <cstring>

#include "proto/exit_codes.h"

namespace dtrun::agent {
namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string who(const WorkerOutcome& outcome) {
  return "rank " + std::to_string(outcome.rank) + " on " + outcome.host;
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string out = indent;
  for (char c : text) {
    out.push_back(c);
    if (c == '\n') out += indent;
  }
  return out;
}

std::string first_failure_text(const WorkerOutcome& first) {
  std::string text = who(first) + " failed first: " + describe_exit(first.exit_code, first.signal) +
                     " after " + fixed(first.uptime_s, 1) + " s (local rank " +
                     std::to_string(first.local_rank) + ", pid " + std::to_string(first.pid) + ")";
  if (!first.error.empty()) text += "\n  error:\n" + indented(first.error, "    ");
  if (!first.stderr_tail.empty()) {
    text += "\n  last lines of its stderr:";
    for (const std::string& line : first.stderr_tail) text += "\n    " + line;
  }
  return text;
}

std::string followers_text(const JobEnd& end) {
  std::string text;
  for (const WorkerOutcome& follower : end.followers) {
    text += "\n  followed: " + who(follower) + ", " + describe_exit(follower.exit_code, follower.signal);
    if (!follower.collateral) text += " of its own";
  }
  return text;
}

std::string restarts_text(const JobEnd& end, int max_restarts) {
  if (max_restarts == 0) return "";
  std::string text =
      "\n  restarts used: " + std::to_string(end.restart_count) + " of " + std::to_string(max_restarts);
  if (end.restart_count < max_restarts && !end.first_failure->retryable) {
    text += " (the same failure would come back, so no restart was tried)";
  }
  return text;
}

}  // namespace

std::string failure_report(const JobEnd& end, int max_restarts) {
  if (!end.first_failure) return end.reason;
  return "the job failed: " + first_failure_text(*end.first_failure) + restarts_text(end, max_restarts) +
         followers_text(end);
}

std::string done_line(const Completion& completion) {
  std::string text = "done: " + std::to_string(completion.step) + " steps";
  if (completion.accuracy >= 0) text += ", test accuracy " + fixed(100 * completion.accuracy, 1) + " %";
  text += ", loss " + fixed(completion.loss, 3);
  if (!completion.model_path.empty()) text += ", model in " + completion.model_path;
  return text;
}

std::string describe_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace dtrun::agent
