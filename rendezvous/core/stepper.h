// One step of the coordinator's state machine (state.h), from the inside: events.cc says what an event does
// to the state, generations.cc what follows from the state and the time.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/state.h"

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
  // Events.
  void handle(const Event& event);
  void on_join(ConnectionId from, std::int64_t generation, const Join& join);
  void on_failure(const Failure& failure);
  void on_stopped(Seat& seat, const Stopped& stopped);
  void on_finished(Seat& seat);
  void on_heartbeat(Member& member, const Heartbeat& heartbeat);
  void begin_anew();
  bool tell_result(ConnectionId from, const Join& join);
  std::optional<Rejected> refusal(const Join& join);
  void admit(ConnectionId from, std::int64_t generation, const Join& join);
  void reject(ConnectionId to, Rejected rejected);
  Seat* seat_of(ConnectionId from, std::int64_t generation);
  void close_seat(bool Seat::*how, Seat& seat);

  // Members that go, and come back.
  void remove(ConnectionId id, const std::string& how);
  void lose_touch(ConnectionId id, const std::string& how);
  void expel(int seat, const std::string& how);
  bool adopts(std::int64_t generation, const Join& join) const;
  void adopt(std::int64_t generation, const Join& join);
  int seat_to_resume(std::int64_t generation, const Join& join) const;
  void resume(Member& member, int seat);
  void catch_up(ConnectionId id, int seat, bool missed_assignment);
  void no_longer_away(int seat);

  // What follows from the state and the time.
  void advance();
  void sweep();
  void give_up_away();
  void take_newcomer();
  void conclude();
  void gather_again(Millis delay);
  bool settling();
  void gather();
  void announce();

  // Generations.
  void break_generation(Cause cause, const std::string& why);
  void order_stop();
  void order_overdue_stop();
  std::vector<ConnectionId> choose() const;
  void start_generation();
  void seat(const std::vector<ConnectionId>& in_rank_order);
  void end_job(int exit_code, const std::string& reason, const WorkerOutcome* first);
  std::string first_reason() const;

  template <typename Body>
  void say(ConnectionId to, Body body) {
    actions_.push_back({to, s_.generation, std::move(body)});
  }
  void count_changed();
  Millis hear_out() const { return std::min(kHearOut, s_.settings->heartbeat_timeout / 2); }
  // When a member that was heard at `last_seen` is taken for silent, but not given up yet.
  Millis overdue_at(Millis last_seen) const {
    return last_seen + s_.settings->heartbeat_timeout - hear_out();
  }
  // A worker that fails now is taken for a victim of what is known, or of a peer that is out of touch.
  bool explained() const {
    return (s_.phase == Phase::kStopping && s_.cause != Cause::kFailure) || s_.away_seats > 0;
  }
  bool in_generation() const { return s_.phase == Phase::kRunning || s_.phase == Phase::kStopping; }
  bool everybody_finished() const { return s_.finished_seats == static_cast<int>(s_.seats.size()); }
  int joined() const { return static_cast<int>(s_.members.size()); }

  State& s_;
  const Millis now_;
  std::vector<Action> actions_;
};

}  // namespace dtrun::rendezvous
