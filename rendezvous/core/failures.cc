#include "rendezvous/core/failures.h"

#include "proto/core/exit_codes.h"

namespace dtrun::rendezvous {

void Failures::note(const WorkerOutcome& outcome, bool explained) {
  if (!is_failure(outcome)) return;
  const auto [known, added] = outcomes_.try_emplace(outcome.rank, outcome);
  if (!added && (!known->second.collateral || outcome.collateral)) return;  // nothing new
  known->second = outcome;
  const bool victim = outcome.collateral || (explained && outcome.retryable);
  std::optional<int>& earliest = victim ? victim_ : culprit_;
  if (!earliest) earliest = outcome.rank;
}

const WorkerOutcome* Failures::first(bool explained) const {
  const std::optional<int> rank = culprit_ || explained ? culprit_ : victim_;
  return rank ? &outcomes_.at(*rank) : nullptr;
}

std::vector<WorkerOutcome> Failures::followers(const WorkerOutcome* first) const {
  std::vector<WorkerOutcome> others;
  for (const auto& [rank, outcome] : outcomes_)
    if (first == nullptr || rank != first->rank) others.push_back(outcome);
  for (WorkerOutcome& other : others) {
    // What a victim wrote explains nothing, and thousands of them would fill a message.
    if (!other.collateral) continue;
    other.stderr_tail.clear();
    other.traceback.clear();
  }
  return others;
}

bool is_failure(const WorkerOutcome& outcome) {
  if (outcome.signal != 0) return true;
  const bool told_to_stop = outcome.collateral && outcome.exit_code == kExitWorkerStopped;
  return outcome.exit_code != 0 && !told_to_stop;
}

int exit_code_of(const WorkerOutcome& outcome) {
  return outcome.signal != 0 ? exit_code_of_signal(outcome.signal) : outcome.exit_code;
}

std::string describe(const WorkerOutcome& outcome) {
  return "rank " + std::to_string(outcome.rank) + " on " + outcome.host + " failed (" +
         describe_exit(outcome.exit_code, outcome.signal, outcome.cause) + ")";
}

}  // namespace dtrun::rendezvous
