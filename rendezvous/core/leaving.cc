// Members that go: they leave, fall silent, or lose their connection and do not come back.
#include "rendezvous/core/stepper.h"
#include "rendezvous/core/wording.h"

namespace dtrun::rendezvous {

// Removes members that have been silent for too long.
void Stepper::sweep() {
  if (now_ < s_.deadlines.sweep) return;
  const Millis timeout = s_.settings->heartbeat_timeout;
  std::vector<ConnectionId> silent;
  s_.deadlines.sweep = kNever;
  for (auto& [id, member] : s_.members) {
    Millis next = overdue_at(member.last_seen);
    if (next <= now_) {
      if (!member.overdue_since) member.overdue_since = now_;
      next = std::max(*member.overdue_since + hear_out(), member.last_seen + timeout);
    }
    if (next <= now_)
      silent.push_back(id);
    else
      s_.deadlines.sweep = std::min(s_.deadlines.sweep, next);
  }
  for (ConnectionId id : silent) {
    say(id, Close{.abort = true});
    remove(id, "was silent for " + seconds(timeout));
  }
}

// The member is gone for good.
void Stepper::remove(ConnectionId id, const std::string& how) {
  const Member* member = s_.members.find(id);
  if (member == nullptr) return;
  const std::optional<int> seat = member->seat;
  s_.members.remove(id);
  if (seat) expel(*seat, how);
  if (s_.members.empty() && s_.current.membership == nullptr && s_.phase == Phase::kGathering)
    s_ = State{};  // nobody is left who knew the run: the next one to join states it anew
  else
    count_changed();
}

// The member's connection broke: its seat waits for it a little.
void Stepper::lose_touch(ConnectionId id, const std::string& how) {
  const Member& member = s_.members.at(id);
  if (!in_generation() || !member.seat) return remove(id, how);
  s_.current.seats.set_away(
      *member.seat, {.until = now_ + kReconnectGrace, .how_lost = how, .member_id = member.join.member_id});
  s_.members.remove(id);
}

// Gives up the members that did not come back in time.
void Stepper::give_up_away() {
  for (int rank : s_.current.seats.overdue(now_)) {
    const std::string how = s_.current.seats[rank].away->how_lost;
    s_.current.seats.give_up(rank);
    expel(rank, how);
  }
}

// The member with this seat is gone. One that had finished its work is not lost.
void Stepper::expel(int rank, const std::string& how) {
  if (!in_generation()) return;
  Generation& current = s_.current;
  const bool ran = current.seats[rank].open();
  current.seats.set_gone(rank);
  if (current.seats[rank].finished) return;
  current.lost_member = true;
  const std::string why = current.membership->nodes[rank].host + " " + how;
  if (s_.phase == Phase::kRunning) return break_generation(Cause::kLoss, why);
  // The loss explains what was seen of it first: victims, or workers that stopped without a reason.
  if (current.cause == Cause::kFailure && current.failures.first(true) != nullptr) return;
  if (current.cause == Cause::kStoppedByItself) current.cause = Cause::kLoss;
  if (current.cause == Cause::kFailure || current.cause == Cause::kLoss) current.why = why;
  if (ran) order_overdue_stop();
}

}  // namespace dtrun::rendezvous
