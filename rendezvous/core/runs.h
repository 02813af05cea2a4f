// Several runs side by side on one coordinator, each a state machine of its own (state.h). The run id in a
// member's Join says which run it belongs to. Pure.
//
// A run is forgotten once it is over and all its members have left, so that the next run with its id begins
// afresh. Only the ids of its members and its result are remembered, for members that come late. A new agent
// that joins a run that is over, but not forgotten, waits for the next run with that id.
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
  // `many`: false means one run only. Its state machine gets all events and refuses members of other runs.
  explicit Runs(bool many) : many_(many) {}

  std::vector<Action> step(const Event& event, Millis now);
  Millis next_deadline() const;

  // Members that are connected, or away (Seats).
  int members() const;

  const std::map<std::string, State>& states() const { return states_; }  // by run id

  // Ids of the runs that were forgotten since the last call: their keys in the store may be deleted.
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
