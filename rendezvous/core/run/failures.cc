#include "rendezvous/core/run/failures.h"

#include "proto/core/exit_codes.h"
#include "rendezvous/core/rank_set.h"

namespace dtrun::rendezvous {
namespace {

double failed_at(const WorkerOutcome& outcome) {
  return outcome.error_at > 0 ? outcome.error_at : outcome.ended_at;
}

}  // namespace

void Failures::note(const WorkerOutcome& outcome, bool explained) {
  note_place(outcome);
  if (!is_failure(outcome)) return;
  const auto [known, added] = outcomes_.try_emplace(outcome.rank, outcome);
  // A worker that hangs is reported before it is killed; its end tells the rest.
  if (!added && known->second.cause == EndCause::kHung && outcome.cause == EndCause::kHung)
    known->second = outcome;
  // A failure is reported before the GPU's driver has answered, so either report may be the one that has it.
  const std::string gpu = outcome.gpu.empty() ? known->second.gpu : outcome.gpu;
  const bool nothing_new = !added && (!known->second.collateral || outcome.collateral);
  if (!nothing_new) known->second = outcome;
  known->second.gpu = gpu;
  if (nothing_new) return;
  const bool victim = outcome.collateral || (explained && outcome.retryable);
  std::optional<int>& earliest = victim ? victim_ : culprit_;
  if (!earliest) earliest = outcome.rank;
}

// Also of a worker that ended well in the meantime.
void Failures::note_place(const WorkerOutcome& outcome) {
  if (outcome.activity == Activity::kUnseen) return;
  locations_[outcome.rank] = {.where = outcome.where, .activity = outcome.activity, .host = outcome.host};
}

const WorkerOutcome* Failures::culprit(const Hang& hang) const {
  if (!is_one(hang.suspects)) return nullptr;
  const auto known = outcomes_.find(hang.suspects[0].first);
  return known != outcomes_.end() ? &known->second : nullptr;
}

void Failures::set_hung(const std::vector<RankRange>& ranks) {
  for (const RankRange& range : ranks) {
    for (auto known = outcomes_.lower_bound(range.first);
         known != outcomes_.end() && known->first <= range.last; ++known)
      known->second.cause = EndCause::kHung;
  }
}

const WorkerOutcome* Failures::first(bool explained) const {
  const std::optional<int> rank = culprit_ || explained ? culprit_ : victim_;
  if (!rank) return nullptr;
  const WorkerOutcome* first = &outcomes_.at(*rank);
  for (const auto& [_, outcome] : outcomes_)
    if (outcome.error_at > 0 && outcome.host == first->host && outcome.error_at < failed_at(*first))
      first = &outcome;
  return first;
}

std::vector<WorkerOutcome> Failures::followers(const WorkerOutcome* first) const {
  std::vector<WorkerOutcome> others;
  for (const auto& [rank, outcome] : outcomes_)
    if (first == nullptr || rank != first->rank) others.push_back(outcome);
  for (WorkerOutcome& other : others) {
    // A victim's last output explains nothing, and thousands of them would fill a message.
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
