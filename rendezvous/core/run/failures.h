// Failures finds the worker of a generation that failed first, and those that merely followed. Pure
// bookkeeping over the outcomes that members report; stopping.cc decides what follows (restart, end).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/observe/hang.h"

namespace dtrun::rendezvous {

class Failures {
 public:
  // Notes how a worker ended. `explained`: this generation was already broken by something else (a member
  // lost, a newcomer), so a worker that fails now is taken for a victim of that unless its failure would come
  // back.
  void note(const WorkerOutcome& outcome, bool explained);

  // The first failure: the earliest culprit; failing that the earliest victim. Null if nothing failed, or if
  // there are only victims and something else explains them. A Python process takes a second to end after its
  // error, and a peer that lost its connection to that may end before: so a worker of the same host, whose
  // clock is the same, comes first if it wrote its error file before the other one failed.
  const WorkerOutcome* first(bool explained) const;

  // The places where the workers stood if the job hung, by rank.
  const std::map<int, StackLocation>& locations() const { return locations_; }
  // The one worker that is likely at fault; null if there are several, or none, or it did not end badly.
  const WorkerOutcome* culprit(const Hang& hang) const;
  // `ranks` hang, however they were ended.
  void set_hung(const std::vector<RankRange>& ranks);

  // The other workers that did not end well, by rank; victims without the last output of their processes.
  std::vector<WorkerOutcome> followers(const WorkerOutcome* first) const;

 private:
  void note_place(const WorkerOutcome& outcome);

  std::map<int, WorkerOutcome> outcomes_;  // by rank
  std::map<int, StackLocation> locations_;
  std::optional<int> culprit_;  // rank of the earliest
  std::optional<int> victim_;   // rank of the earliest
};

// False for a worker that succeeded, or that ended at an agreed step because it was told to.
bool is_failure(const WorkerOutcome& outcome);
int exit_code_of(const WorkerOutcome& outcome);

// "rank 3 on node-b failed (exit code 3)"
std::string describe(const WorkerOutcome& outcome);

}  // namespace dtrun::rendezvous
