// Whether, and when, a job goes on after a worker failure. Pure; counts restarts, waits longer the more often
// a job fails soon after its start, and gives a job up that fails in the same way again and again.
#pragma once

#include <string>

#include "rendezvous/messages.h"

namespace dtrun::rendezvous {

class RestartPolicy {
 public:
  struct Verdict {
    bool restart = false;
    Millis delay = 0;    // before that restart
    std::string reason;  // one sentence: of the restart, or of the job's end
  };

  // What follows from `failure`, after a generation that ran for `ran` and got to `step` (0: nothing
  // reported).
  Verdict judge(const Outcome& failure, int max_restarts, Millis ran, std::int64_t step);

  int restarts() const { return restarts_; }
  // A coordinator that was itself restarted goes on counting where its members were.
  void resume_at(int restarts) { restarts_ = restarts; }

 private:
  bool same_as_before(const Outcome& failure, bool early);

  int restarts_ = 0;
  int quick_ = 0;               // restarts in a row of generations that got nowhere
  std::int64_t best_step_ = 0;  // that any generation got to
  int alike_ = 0;               // failures in a row that are alike
  Outcome last_;
};

}  // namespace dtrun::rendezvous
