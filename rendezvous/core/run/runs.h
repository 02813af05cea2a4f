// Several runs side by side on one coordinator, each a state machine of its own (state.h). The run id in a
// member's Join says which run it belongs to. Pure.
//
// A run has ended once it is over and all its members have left. The next run with its id begins afresh. An
// ended run is kept for a while, for members that come late and for people who ask how it ended. A new agent
// that joins a run that is over, but has members, waits for the next run with that id.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {

// How long an ended run is kept, unless too many have ended since (runs.cc).
inline constexpr Millis kKeepEnded = 24LL * 3600 * 1000;
// `dtrun status` without a run id shows a run for this long after its end.
inline constexpr Millis kRecentlyEnded = 600 * 1000;

// The facts on a run that a later coordinator must know, so that no generation number is used twice, and no
// end is taken back.
struct RunRecord {
  std::string run_id;
  std::int64_t generation = 0;             // the newest
  std::shared_ptr<const JobEnd> end = {};  // null: it is not over
  // For people: the names of the nodes, and the nodes that the run does not wait for.
  std::vector<std::string> hosts = {};  // of the generation's nodes, in rank order; empty ones are not known
  std::string leader = {};              // host that has the coordinator; empty: none of the run's nodes
  std::vector<News> missing = {};       // that left, or were lost or refused; their ages count from now
  std::int64_t changes = 0;             // of that, ever
  std::int64_t written = 0;             // ms since 1970, by the writer's clock; 0: now
};

// All that a later coordinator could contradict.
bool same_numbers(const RunRecord& one, const RunRecord& other);
// All but the ages.
bool same_facts(const RunRecord& one, const RunRecord& other);

class Runs {
 public:
  // `many`: false means one run only. Its state machine gets all events and refuses members of other runs.
  // `outlive_host`: another host takes the coordinator over, so no run ends with the host of this one.
  explicit Runs(bool many, bool outlive_host = false) : many_(many), outlive_host_(outlive_host) {}

  std::vector<Action> step(const Event& event, Millis now);
  Millis next_deadline() const;

  // Records of all runs at work, and of those that ended in the last ten minutes.
  std::vector<RunRecord> records(Millis now) const;
  // Begins where an earlier coordinator ended. REQUIRES: nothing has happened here yet.
  void restore(const std::vector<RunRecord>& records, Millis now);
  // True if members may still come that have not heard of an end that restore() brought.
  bool has_end_to_tell(Millis now) const;

  // Members that are connected, or away (Seats).
  int members() const;

  const std::map<std::string, State>& states() const { return states_; }  // by run id

  // The last states of runs that have ended, in the order of their ends. Several may have the same id.
  using Ended = std::deque<std::shared_ptr<const State>>;
  const Ended& ended() const { return ended_; }
  // The newest ended run with this id; null if there is none.
  const State* newest_ended(const std::string& run_id) const;

  // Ids of the runs that have ended since the last call: their keys in the store may be deleted.
  std::vector<std::string> take_ended() { return std::exchange(newly_ended_, {}); }

 private:
  std::string run_of(const Event& event);
  bool tell_late(const Event& event, std::vector<Action>* actions);
  void tell_of_last(const std::string& run, const Event& event, Millis now, std::vector<Action>* actions);
  bool keep_for_next(const std::string& run, const Event& event);
  void end_if_over(const std::string& run, Millis now, std::vector<Action>* actions);
  void keep(State state);
  void forget_old(Millis now);
  RunRecord restored_now(RunRecord record, Millis now) const;
  void begin_next(const std::string& run, Millis now, std::vector<Action>* actions);

  bool many_, outlive_host_;
  std::map<std::string, State> states_;
  std::map<ConnectionId, std::string> run_of_;
  std::map<std::string, std::vector<Event>> kept_;  // Joins for the next run of a name, in order
  Ended ended_;
  std::size_t ended_size_ = 0;                                        // sum of size_of()
  std::map<std::string, std::shared_ptr<const State>> newest_ended_;  // by run id
  std::map<MemberId, std::shared_ptr<const State>> ended_run_of_;
  std::vector<std::string> newly_ended_;
  std::map<std::string, RunRecord> restored_;       // of runs that were at work, by run id
  std::map<std::string, RunRecord> ends_restored_;  // by run id
  Millis restored_at_ = 0;
};

}  // namespace dtrun::rendezvous
