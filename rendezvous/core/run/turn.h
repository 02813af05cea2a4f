// One turn of the coordinator's state machine (state.h): the state, the time, and the messages that the turn
// sends. The parts that decide share it: Stopping, Leaving, Gathering and Joining. Each of them knows those
// before it, and stepper.cc calls them in order.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {

// Agents that join within a moment receive the count once all of them have joined, not once for each. The gap
// between two counts grows with the number of receivers, so that at most about one message in a millisecond
// is spent on counts. It has a limit, so that every member hears of the count now and then.
inline constexpr Millis kAnnounceGap = 100;
inline constexpr Millis kLongestAnnounceGap = 10000;
inline Millis announce_gap(int members) { return std::min(kLongestAnnounceGap, kAnnounceGap + members); }

class Turn {
 public:
  static constexpr const char* kHosts = ", which hosts the coordinator, ";
  static constexpr const char* kIsBack = " is back";

  Turn(State& state, Millis now) : s_(state), now_(now) {}

  State& state() { return s_; }
  Millis now() const { return now_; }
  std::vector<Action> actions() { return std::move(actions_); }

  void say(ConnectionId to, decltype(Action::body) body);
  // Keeps the news for tell_news(), which all members but those whom it is about hear.
  void note(News::Kind kind, const std::string& host, const std::string& text);
  void tell_news();

  void count_changed();
  void begin(Generation generation);
  void begin_anew();
  // The run ends in this turn, since the host of its coordinator goes: why.
  void host_left(const std::string& why) { host_left_ = why; }
  const std::string& why_host_left() const { return host_left_; }

  bool ends_with(const Join& member) const { return member.hosts && !s_.outlives_host; }
  // Of the current generation's ranks. REQUIRES: in_generation()
  RankReports rank_reports() const;
  bool in_generation() const { return s_.phase == Phase::kRunning || s_.phase == Phase::kStopping; }
  // True if some members have no seat. Compares two counts instead of looking at each member, since all may
  // come or go at once. REQUIRES: in_generation().
  bool somebody_waits() const { return s_.members.size() > s_.current.seats.taken(); }
  Millis hear_out() const { return std::min(kHearOut, s_.settings->heartbeat_timeout / 2); }
  // When a member that was heard at `last_seen` is taken for silent, but not given up yet.
  Millis overdue_at(Millis last_seen) const {
    return last_seen + s_.settings->heartbeat_timeout - hear_out();
  }

 private:
  State& s_;
  const Millis now_;
  std::vector<Action> actions_;
  std::vector<News> news_;  // to be told
  std::string host_left_;   // empty: the host of the coordinator stays
};

}  // namespace dtrun::rendezvous
