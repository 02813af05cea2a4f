// Several runs side by side on one coordinator, each a state machine of its own (state.h), told apart by the
// run id of their members' Join. Pure. A run that is over and left is forgotten, so that the next one of its
// name begins afresh; only its members are remembered, in case one of them comes late for the result. Who
// comes for the next one while others still leave the last is kept until then.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/state.h"

namespace dtrun::rendezvous {

class Runs {
 public:
  // `many`: false makes one state machine answer everybody, which refuses the members of other runs.
  explicit Runs(bool many) : many_(many) {}

  std::vector<Action> step(const Event& event, Millis now);
  Millis next_deadline() const;

  // Members connected, or expected back within a moment.
  int members() const;

  const std::map<std::string, State>& states() const { return states_; }  // by run id

  // Ids of the runs that were forgotten since the last call: what was kept for them may go.
  std::vector<std::string> take_forgotten() { return std::exchange(forgotten_, {}); }

 private:
  struct Farewell {
    std::shared_ptr<const JobEnd> result;
    std::int64_t generation = 0;
  };

  std::string run_of(const Event& event);
  bool tell_late(const Event& event, std::vector<Action>* actions);
  bool keep_for_next(const std::string& run, const Event& event);
  void forget_if_over(const std::string& run, Millis now, std::vector<Action>* actions);
  void begin_next(const std::string& run, Millis now, std::vector<Action>* actions);

  const bool many_;
  std::map<std::string, State> states_;
  std::map<ConnectionId, std::string> run_of_;
  std::map<std::string, std::vector<Event>> kept_;  // Joins for the next run of a name, in order
  std::map<MemberId, Farewell> farewells_;
  std::deque<MemberId> farewell_order_;
  std::vector<std::string> forgotten_;
};

}  // namespace dtrun::rendezvous
