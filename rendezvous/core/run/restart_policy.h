// Decides whether, and when, a job goes on after a worker failure. Pure; counts restarts, and waits longer
// the more often a job fails soon after its start. If the option for it is set, a job that fails in the same
// way again and again is given up before its restarts are used up.
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

struct RestartLimits {
  int max_restarts = 0;
  int crash_loop_limit = 0;  // failures alike in a row, soon after the start, that end the job; 0: none do
};

class RestartPolicy {
 public:
  struct Decision {
    bool restart = false;
    Millis delay = 0;    // before that restart
    std::string reason;  // one sentence: why the job restarts, or why it ends
  };

  // The decision on `failure`, after a generation that ran for `ran` and got to `step` (0: nothing reported).
  // `what`: the words for the failure in the reason; empty: the failure's own. `kept`: other workers go on
  // with their state in memory, so there is no back-off, unless the job fails in the same way again and
  // again.
  Decision judge(const WorkerOutcome& failure, const RestartLimits& limits, Millis ran, std::int64_t step,
                 const std::string& what = "", bool kept = false);

  // A node was lost, with its workers or its agent.
  void note_lost_node() { ++history_.failures.node_lost; }

  int restarts() const { return restarts_; }
  const CrashHistory& history() const { return history_; }
  // Goes on with the history that members send to a restarted coordinator. Numbers out of range are clamped.
  void resume_at(int restarts, const CrashHistory& history);

 private:
  void count(const WorkerOutcome& failure);
  void count_alike(const WorkerOutcome& failure, bool early);
  Millis delay(bool kept);

  int restarts_ = 0;
  CrashHistory history_;
};

}  // namespace dtrun::rendezvous
