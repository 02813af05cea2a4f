#include "rendezvous/core/run/restart_policy.h"

#include <algorithm>
#include <csignal>

#include "proto/core/exit_codes.h"
#include "rendezvous/core/run/failures.h"

namespace dtrun::rendezvous {
namespace {

// A generation that lasts this long got somewhere, even if it reports no progress.
constexpr Millis kSettled = 30000;
// A worker that fails this soon has not begun its work: a large framework takes seconds to be loaded.
constexpr double kEarlySeconds = 10;
// From this number of similar failures on it is no accident: people are told, and every restart waits.
constexpr int kLooksLikeALoop = 3;
constexpr Millis kLongestDelay = 30000;
constexpr int kMostFailures = 1 << 30;  // by a member's word

// Signals that people and schedulers send: they do not tell whether the program would fail again.
bool came_from_outside(const WorkerOutcome& failure) {
  const int signal = failure.signal;
  return failure.error.empty() && (signal == SIGKILL || signal == SIGTERM || signal == SIGINT ||
                                   signal == SIGHUP || signal == SIGQUIT);
}

bool alike(const WorkerOutcome& failure, const CrashHistory& last) {
  return failure.rank == last.rank && failure.exit_code == last.exit_code && failure.signal == last.signal;
}

// 0, 1, 2, 4, … seconds.
Millis delay_after(int quick_restarts) {
  if (quick_restarts == 0) return 0;
  return std::min(kLongestDelay, Millis{1000} << std::min(quick_restarts - 1, 10));
}

}  // namespace

void RestartPolicy::count(const WorkerOutcome& failure) {
  FailureCounts& failures = history_.failures;
  int& cause = failure.cause == EndCause::kOutOfMemory ? failures.out_of_memory
               : failure.cause == EndCause::kHung      ? failures.hung
               : failure.signal != 0                   ? failures.signal
                                                       : failures.exit;
  ++cause;
}

// Counts how often in a row the job failed in one way before it got anywhere.
void RestartPolicy::count_alike(const WorkerOutcome& failure, bool early) {
  const bool counts = early && !came_from_outside(failure);
  if (!counts)
    history_.alike = 0;
  else
    history_.alike = history_.alike > 0 && alike(failure, history_) ? history_.alike + 1 : 1;
  history_.rank = failure.rank;
  history_.exit_code = failure.exit_code;
  history_.signal = failure.signal;
}

Millis RestartPolicy::delay(bool kept) {
  if (!kept) return delay_after(history_.quick_restarts++);
  return delay_after(std::max(0, history_.alike - kLooksLikeALoop + 1));
}

void RestartPolicy::resume_at(int restarts, const CrashHistory& history) {
  restarts_ = std::max(0, restarts);
  history_ = history;
  history_.quick_restarts = std::clamp(history.quick_restarts, 0, restarts_);
  history_.best_step = std::max<std::int64_t>(0, history.best_step);
  history_.alike = std::clamp(history.alike, 0, restarts_);
  FailureCounts& failures = history_.failures;
  for (int* const count :
       {&failures.exit, &failures.signal, &failures.out_of_memory, &failures.hung, &failures.node_lost})
    *count = std::clamp(*count, 0, kMostFailures);
}

RestartPolicy::Decision RestartPolicy::judge(const WorkerOutcome& failure, const RestartLimits& limits,
                                             Millis ran, std::int64_t step, const std::string& what,
                                             bool kept) {
  const std::string failed = what.empty() ? describe(failure) : what;
  count(failure);
  const auto give_up = [&](const std::string& why) { return Decision{.reason = failed + why}; };
  if (!failure.retryable) return give_up(", which a restart would not cure");
  const bool progressed = step > history_.best_step;
  history_.best_step = std::max(history_.best_step, step);
  count_alike(failure, !progressed && failure.uptime_s < kEarlySeconds);
  const std::string times = std::to_string(history_.alike) + " times in a row";
  if (restarts_ >= limits.max_restarts)
    return give_up(limits.max_restarts > 0 ? ", and all restarts are used up" : "");
  if (limits.crash_loop_limit > 0 && history_.alike >= limits.crash_loop_limit)
    return give_up(", soon after its start and " + times + ": --crash_loop_limit " +
                   std::to_string(limits.crash_loop_limit));
  if (progressed || ran >= kSettled) history_.quick_restarts = 0;
  const std::string again = history_.alike < kLooksLikeALoop ? "" : ", soon after its start and " + times;
  ++restarts_;
  return {.restart = true,
          .delay = delay(kept),
          .reason = failed + again + ", restart " + std::to_string(restarts_) + " of " +
                    std::to_string(limits.max_restarts)};
}

}  // namespace dtrun::rendezvous
