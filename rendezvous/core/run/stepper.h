// One step of the coordinator's state machine (state.h), from the inside. One class, one source file for each
// idea: stepper.cc has the order of things, joining.cc members that come, leaving.cc members that go,
// stopping.cc how a generation ends, gathering.cc how the next one starts.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/run/rank_assignment.h"
#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {

class Stepper {
 public:
  Stepper(State& state, Millis now) : s_(state), now_(now) {}

  std::vector<Action> run(const Event& event) {
    handle(event);
    advance();
    return std::move(actions_);
  }

 private:
  static constexpr const char* kHosts = ", which hosts the coordinator, ";
  static constexpr const char* kIsBack = " is back";

  // stepper.cc
  void handle(const Event& event);
  void say(ConnectionId to, decltype(Action::body) body);
  void on_heartbeat(Member& member, const Heartbeat& heartbeat);
  void on_ready(Member& member);
  void note(News::Kind kind, const std::string& host, const std::string& text);
  void tell_news();
  std::optional<int> open_seat_of(const Member& sender, std::int64_t generation) const;
  void advance();

  // joining.cc
  void on_join(ConnectionId from, std::int64_t generation, const Join& join);
  void begin_anew();
  bool tell_result(ConnectionId from, const Join& join);
  std::optional<Refusal> refusal(const Join& join) const;
  void refuse(ConnectionId from, const Join& join, const Refusal& refusal);
  void tell_other_command(const Join& join);
  void admit(ConnectionId from, std::int64_t generation, const Join& join);
  bool adopts(std::int64_t generation, const Join& join) const;
  void adopt(std::int64_t generation, const Join& join);
  void give_up_the_gone();
  void welcome_back(Member& member, std::int64_t generation, bool seated);
  std::optional<int> seat_to_resume(std::int64_t generation, const Join& join) const;
  void resume(ConnectionId id, Member& member, int rank);
  void catch_up(ConnectionId id, int rank, bool missed_assignment);

  // leaving.cc
  void sweep();
  void leave(ConnectionId id, const Leave& leave);
  void end_with_host();
  void remove(ConnectionId id, News::Kind kind, const std::string& how);
  void lose_touch(ConnectionId id, const std::string& how);
  void give_up_away();
  void give_up_predecessor();
  bool needs(const Member& member) const;
  bool ends_with(const Join& member) const { return member.hosts && !s_.outlives_host; }
  bool falls_below(int members) const;
  std::string not_back(int rank) const;
  void evict(int rank, const std::string& why);

  // stopping.cc
  bool is_of(int rank, const WorkerOutcome& outcome) const;
  void on_failure(int rank, const Failure& failure);
  void on_stopped(int rank, const Stopped& stopped);
  void break_generation(Cause cause, const std::string& why);
  StopOrder stop_order() const;
  void order_stop();
  void order_overdue_stop();
  void conclude();
  bool workers_are_left() const;
  bool settling();
  bool ends_by_hand();
  void succeed();
  std::optional<Hang> hang_of(const WorkerOutcome& first);
  void end_job(int exit_code, const std::string& reason, const WorkerOutcome* first,
               const std::optional<Hang>& hang = std::nullopt);

  // gathering.cc
  void take_newcomer();
  void gather_again(Millis delay);
  void gather();
  void start_generation();
  void begin(Generation generation);
  void announce();
  void count_changed();
  std::string too_few() const;
  bool awaits_ready();
  std::string who_loads() const;
  std::string reason_to_start(const RankAssignment& rank_assignment) const;

  // True if a worker that fails now counts as a victim: the generation was broken by something other than a
  // worker failure, or a peer is out of touch.
  bool explained() const {
    return (s_.phase == Phase::kStopping && s_.current.cause != Cause::kFailure) ||
           s_.current.seats.away() > 0;
  }
  bool in_generation() const { return s_.phase == Phase::kRunning || s_.phase == Phase::kStopping; }
  // True if some members have no seat. Compares two counts instead of looking at each member, since all may
  // come or go at once. REQUIRES: in_generation().
  bool somebody_waits() const { return s_.members.size() > s_.current.seats.taken(); }
  Millis hear_out() const { return std::min(kHearOut, s_.settings->heartbeat_timeout / 2); }
  // When a member that was heard at `last_seen` is taken for silent, but not given up yet.
  Millis overdue_at(Millis last_seen) const {
    return last_seen + s_.settings->heartbeat_timeout - hear_out();
  }

  State& s_;
  const Millis now_;
  std::vector<Action> actions_;
  std::vector<News> news_;  // to be told
  std::string host_left_;   // why the run ends with the coordinator's host
};

}  // namespace dtrun::rendezvous
