#include "agent/core/supervisor/outcome.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

// Python refused the script's syntax, as it would again.
bool is_syntax_error(const WorkerOutcome& outcome) {
  if (outcome.exit_code != 1 || outcome.stderr_tail.empty()) return false;
  const std::string& last = outcome.stderr_tail.back();
  return last.starts_with("SyntaxError: ") || last.starts_with("IndentationError: ") ||
         last.starts_with("TabError: ");
}

// The built-in trainer says so by its exit code.
bool says_it_followed(const WorkerOutcome& outcome, const Settings& settings) {
  return settings.builtin && outcome.signal == 0 &&
         (outcome.exit_code == kExitWorkerStopped || outcome.exit_code == kExitWorkerPeerLost);
}

}  // namespace

bool is_collateral(const WorkerOutcome& outcome, const State& state) {
  if (outcome.ok()) return false;
  if (says_it_followed(outcome, state.settings)) return true;
  if (!state.generation.stopping) return false;
  // A signal that we never sent: the worker died by itself, although it was being stopped.
  return outcome.signal == 0 || state.workers.signals.contains(outcome.signal);
}

bool is_retryable(const WorkerOutcome& outcome, const Settings& settings) {
  if (outcome.signal != 0) return true;
  if (settings.builtin) return !is_deterministic_failure(outcome.exit_code);
  if (is_syntax_error(outcome)) return false;
  return std::ranges::none_of(settings.no_restart_exit_codes, [&](const std::pair<int, int>& range) {
    return range.first <= outcome.exit_code && outcome.exit_code <= range.second;
  });
}

bool ended_well(const WorkerOutcome& outcome, const Settings& settings) {
  if (outcome.ok()) return true;
  return settings.builtin ? says_it_followed(outcome, settings)
                          : outcome.collateral && outcome.signal != SIGKILL;
}

bool ended_as_told(const WorkerOutcome& outcome, const State& state) {
  return state.ending.told_signal != 0 && outcome.signal != SIGKILL && is_collateral(outcome, state);
}

WorkerOutcome complete(WorkerOutcome outcome, const State& state, bool never_ran) {
  const Assignment& assignment = state.generation.assignment;
  const Worker& worker = state.workers.all[static_cast<std::size_t>(outcome.local_rank)];
  outcome.group_rank = assignment.group_rank;
  outcome.host = state.settings.host;
  outcome.rank = worker.part ? worker.rank : assignment.node.first_rank + outcome.local_rank;
  outcome.collateral = is_collateral(outcome, state);
  outcome.retryable = outcome.retryable && !never_ran && is_retryable(outcome, state.settings);
  return outcome;
}

}  // namespace dtrun::agent
