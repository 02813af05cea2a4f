#include "rendezvous/core/run/leaving.h"

#include <csignal>
#include <cstring>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

constexpr const char* kNewAgent = "came back with a new agent";

// "SIGTERM"; empty for a number that is no signal.
std::string name_of(int signal) {
  const char* name = signal > 0 ? sigabbrev_np(signal) : nullptr;
  return name != nullptr ? "SIG" + std::string(name) : "";
}

}  // namespace

// The member goes on purpose.
void Leaving::leave(ConnectionId id, const Leave& leave) {
  const Member& member = s_.members.at(id);
  const std::string host = member.join.host;
  const std::string signal = name_of(leave.signal);
  if (leave.soon)
    return turn_.note(News::kNote, host,
                      host + " was told to stop by " + signal + ", its workers are still ending");
  if (turn_.ends_with(member.join) && !leave.replaced && s_.phase != Phase::kOver) {
    turn_.host_left(host + Turn::kHosts + (signal.empty() ? "left" : "was stopped by " + signal));
    return;  // it leaves once the others know
  }
  const bool needed = needs(member);
  if (needed && leave.signal == SIGINT) s_.current.stopped_by_hand = host;
  std::string how = signal.empty() ? "left" : "left (told to by " + signal + ")";
  if (turn_.ends_with(member.join) && leave.replaced) {
    s_.host_gone = true;
    how += ", and the coordinator until another one is in its place";
  }
  remove(id, News::kLeft, how);
}

void Leaving::advance() {
  sweep();
  give_up_away();
  give_up_predecessor();
  end_with_host();
}

// The coordinator goes down with its host: the members are told now, since no coordinator will be there to
// tell them later.
void Leaving::end_with_host() {
  if (turn_.why_host_left().empty() || s_.phase == Phase::kOver || s_.members.empty()) return;
  stopping_.end_job(kExitUnavailable, turn_.why_host_left(), nullptr);
}

// Removes members that have been silent for too long.
void Leaving::sweep() {
  if (now_ < s_.deadlines.sweep) return;
  const Millis timeout = s_.settings->heartbeat_timeout;
  std::vector<ConnectionId> silent;
  s_.deadlines.sweep = kNever;
  for (auto& [id, member] : s_.members) {
    Millis next = turn_.overdue_at(member.last_seen);
    if (next <= now_) {
      if (!member.overdue_since) member.overdue_since = now_;
      next = std::max(*member.overdue_since + turn_.hear_out(), member.last_seen + timeout);
    }
    if (next <= now_)
      silent.push_back(id);
    else
      s_.deadlines.sweep = std::min(s_.deadlines.sweep, next);
  }
  for (ConnectionId id : silent) {
    turn_.say(id, Close{.abort = true});
    remove(id, News::kLost, "was silent for " + seconds_text(timeout));
  }
}

// True if the generation cannot go on without the member. A node whose workers still load has no seat, but
// counts for the minimum.
bool Leaving::needs(const Member& member) const {
  if (!turn_.in_generation()) return false;
  return member.seat ? !s_.current.seats[*member.seat].finished : falls_below(s_.members.size() - 1);
}

bool Leaving::falls_below(int members) const {
  const Seats& seats = s_.current.seats;
  return members + seats.away() < s_.settings->min_nodes && seats.finished() == 0;
}

// The member is gone for good.
void Leaving::remove(ConnectionId id, News::Kind kind, const std::string& how) {
  const Member* member = s_.members.find(id);
  if (member == nullptr) return;
  const std::optional<int> seat = member->seat;
  const std::string host = member->join.host;
  const std::string why = host + " " + how;
  const bool needed = s_.phase == Phase::kGathering || needs(*member);
  s_.members.remove(id);
  if (seat)
    evict(*seat, why);
  else if (needed && turn_.in_generation())
    stopping_.break_generation(Cause::kLoss, why);
  if (needed) note_gone(kind, host, why);
  if (s_.members.empty() && s_.current.membership == nullptr && s_.phase == Phase::kGathering)
    turn_.begin_anew();  // no member is left that knew the run: the next one to join states it
  else
    turn_.count_changed();
}

// The member's connection broke: its seat waits for it a little.
void Leaving::lose_touch(ConnectionId id, const std::string& how) {
  const Member& member = s_.members.at(id);
  if (!turn_.in_generation() || !member.seat) return remove(id, News::kLost, how);
  s_.current.seats.set_away(
      *member.seat, {.until = now_ + kReconnectGrace, .how_lost = how, .member_id = member.join.member_id});
  s_.members.remove(id);
}

// Gives up the members that did not come back in time.
void Leaving::give_up_away() {
  for (int rank : s_.current.seats.overdue(now_)) {
    const bool needed = turn_.in_generation() && !s_.current.seats[rank].finished;
    const std::string host = s_.current.membership ? s_.current.membership->nodes[rank].host : "";
    const std::string why = needed ? not_back(rank) : "";
    s_.current.seats.give_up(rank);
    evict(rank, why);
    if (needed) note_gone(News::kLost, host, why);
  }
}

void Leaving::note_gone(News::Kind kind, const std::string& host, const std::string& why) {
  if (kind == News::kLost) s_.policy.note_lost_node();
  turn_.note(kind, host, why);
}

// Why an away seat is given up. REQUIRES: in_generation()
std::string Leaving::not_back(int rank) const {
  const std::string& host = s_.current.membership->nodes[rank].host;
  const Seat::Away& away = *s_.current.seats[rank].away;
  const auto hosts = [](const auto& member) { return member.second.join.hosts; };
  const auto found = std::find_if(s_.members.begin(), s_.members.end(), hosts);
  const std::string successor = found != s_.members.end() ? found->second.join.host : "";
  const bool led = away.member_id.empty() && host == s_.inherited.leader && host != successor;
  if (!led) return host + " " + away.how_lost;
  return host + ", which had the coordinator, is lost" +
         (successor.empty() ? "" : ": " + successor + " took over");
}

// An agent that hosts the coordinator and was killed took the coordinator with it. Both are here again: the
// only seat of the adopted generation that no member came back to was that agent's own.
void Leaving::give_up_predecessor() {
  Generation& current = s_.current;
  if (!current.adopted || s_.phase != Phase::kRunning || current.seats.away() != 1) return;
  const auto away = std::find_if(current.seats.begin(), current.seats.end(),
                                 [](const Seat& seat) { return seat.away.has_value(); });
  const int rank = static_cast<int>(away - current.seats.begin());
  if (!current.membership->nodes[rank].member_id.empty()) return;  // was here already: will be back
  const auto hosts = [&](const auto& member) {
    return turn_.ends_with(member.second.join) && !member.second.seat;
  };
  const auto newcomer = std::find_if(s_.members.begin(), s_.members.end(), hosts);
  if (newcomer == s_.members.end()) return;
  const std::string& host = current.membership->nodes[rank].host = newcomer->second.join.host;
  current.seats.give_up(rank);
  evict(rank, host + " " + kNewAgent);
  turn_.note(News::kNote, host, host + " " + kNewAgent);
}

// The member with this seat is gone. One that had finished its work is not lost.
void Leaving::evict(int rank, const std::string& why) {
  if (!turn_.in_generation()) return;
  Generation& current = s_.current;
  const bool ran = current.seats[rank].open();
  current.seats.set_gone(rank);
  if (current.seats[rank].finished) return;
  current.lost_member = true;
  if (s_.phase == Phase::kRunning) return stopping_.break_generation(Cause::kLoss, why);
  // The loss explains what was seen of it first: victims, or workers that stopped without a reason.
  if (current.cause == Cause::kFailure && current.failures.first(true) != nullptr) return;
  if (current.cause == Cause::kStoppedByItself) current.cause = Cause::kLoss;
  if (current.cause == Cause::kFailure || current.cause == Cause::kLoss) current.why = why;
  if (ran) stopping_.order_overdue_stop();
}

}  // namespace dtrun::rendezvous
