// What an event does to the coordinator's state: who joins, who is refused, who comes back to its seat, how
// workers end. What follows from it is generations.cc's.
#include <csignal>
#include <cstring>

#include "rendezvous/core/stepper.h"

namespace dtrun::rendezvous {
namespace {

// A member's "newest generation" is believed up to here; nothing real comes near it.
constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 40;
constexpr int kMaxWorldSize = 1 << 30;
// A generation that has lasted this long has lasted long enough for everything that asks.
constexpr Millis kLongestAge = 1'000'000'000'000;

}  // namespace

void Stepper::handle(const Event& event) {
  if (const auto* join = std::get_if<Join>(&event.body)) return on_join(event.from, event.generation, *join);
  const auto member = s_.members.find(event.from);
  if (member == s_.members.end()) return;  // refused, replaced or gone before
  if (const auto* broken = std::get_if<StreamBroken>(&event.body))
    return lose_touch(event.from, broken->why.empty() ? "lost its connection" : broken->why);
  member->second.last_seen = now_;
  if (const auto* leave = std::get_if<Leave>(&event.body)) {
    const char* name = leave->signal != 0 ? sigabbrev_np(leave->signal) : nullptr;
    return remove(event.from, name != nullptr ? "left (told to by SIG" + std::string(name) + ")" : "left");
  }
  if (const auto* heartbeat = std::get_if<Heartbeat>(&event.body))
    return on_heartbeat(member->second, *heartbeat);
  Seat* seat = seat_of(event.from, event.generation);
  if (seat == nullptr) return;
  if (const auto* failure = std::get_if<Failure>(&event.body)) on_failure(*failure);
  if (const auto* stopped = std::get_if<Stopped>(&event.body)) on_stopped(*seat, *stopped);
  if (std::holds_alternative<Finished>(event.body)) on_finished(*seat);
}

// The sender's open seat in the generation that it speaks of; null if that is over, or not its own.
Seat* Stepper::seat_of(ConnectionId from, std::int64_t generation) {
  if (!in_generation()) return nullptr;
  const int seat = s_.members.at(from).seat;
  if (generation != s_.generation || seat < 0 || !s_.seats[seat].open()) return nullptr;
  return &s_.seats[seat];
}

void Stepper::on_heartbeat(Member& member, const Heartbeat& heartbeat) {
  member.report = heartbeat;
  if (in_generation() && member.seat >= 0) s_.step = std::max(s_.step, heartbeat.progress.step);
}

void Stepper::on_join(ConnectionId from, std::int64_t generation, const Join& join) {
  if (s_.members.contains(from)) return;  // a second member on one stream
  const auto known = s_.by_id.find(join.member_id);
  if (known != s_.by_id.end()) {
    // The same agent came back before its old stream was seen to break.
    const ConnectionId old = known->second;
    say(old, Close{true});
    lose_touch(old, "reconnected");
  }
  if (tell_result(from, join)) return;
  // Nobody is left of the run that was stated before, and nobody will come back: a new one may differ.
  const bool deserted = s_.members.empty() && s_.away_seats == 0 && s_.phase != Phase::kOver;
  const bool sound = !refuse_malformed(join) && !refuse_other(settings_of(join), join);
  if (deserted && sound && s_.settings && generation == 0 && refuse_other(*s_.settings, join)) begin_anew();
  if (auto rejected = refusal(join)) return reject(from, *std::move(rejected));
  admit(from, generation, join);
}

// The generations count on: what the workers of the old ones set is still in the store, under their numbers.
void Stepper::begin_anew() {
  const std::int64_t newest = std::max(s_.generation, s_.newest_seen);
  s_ = State{};
  s_.newest_seen = newest;
}

// A member that missed the job's end is told now.
bool Stepper::tell_result(ConnectionId from, const Join& join) {
  if (s_.phase != Phase::kOver || !s_.ever_met.contains(join.member_id)) return false;
  Member member{join, s_.joins++, now_, -1, -1, {}};
  member.join.node_rank = -1;  // it reserves nothing any more
  s_.members.emplace(from, std::move(member));
  s_.by_id[join.member_id] = from;
  s_.sweep_at = std::min(s_.sweep_at, overdue_at(now_));
  say(from, Ended{s_.result});
  return true;
}

std::optional<Rejected> Stepper::refusal(const Join& join) {
  if (s_.phase == Phase::kOver) return Rejected{Rejected::kJobOver, "the run is over: " + s_.why, ""};
  if (auto malformed = refuse_malformed(join)) return malformed;
  if (s_.settings) {
    if (auto other = refuse_other(*s_.settings, join)) return other;
  } else if (auto other = refuse_other(settings_of(join), join)) {
    return other;
  }
  const auto holder = join.node_rank >= 0 ? s_.by_node_rank.find(join.node_rank) : s_.by_node_rank.end();
  if (holder != s_.by_node_rank.end())
    return refuse_node_rank(join.node_rank, s_.members.at(holder->second).join.host);
  return std::nullopt;
}

void Stepper::reject(ConnectionId to, Rejected rejected) {
  say(to, std::move(rejected));
  say(to, Close{});
}

void Stepper::admit(ConnectionId from, std::int64_t generation, const Join& join) {
  if (!s_.settings) {
    s_.settings = settings_of(join);
    s_.join_deadline = now_ + s_.settings->join_timeout;
  }
  if (adopts(generation, join)) adopt(generation, join);
  if (generation < kMaxGeneration) s_.newest_seen = std::max(s_.newest_seen, generation);
  Member& member = s_.members.emplace(from, Member{join, s_.joins++, now_, -1, -1, {}}).first->second;
  member.join.job = {};  // the settings have it, and it may be long
  if (generation > 0 && generation >= s_.generation && join.group_rank >= 0)
    member.previous_rank = join.group_rank;
  s_.by_id[join.member_id] = from;
  s_.ever_met.insert(join.member_id);
  if (join.node_rank >= 0) s_.by_node_rank[join.node_rank] = from;
  s_.sweep_at = std::min(s_.sweep_at, overdue_at(now_));
  const int seat = seat_to_resume(generation, join);
  const bool resumed = seat >= 0 && generation == s_.generation;
  say(from, Welcome{join.address, std::max<Millis>(1, s_.settings->heartbeat_timeout / 3), resumed});
  count_changed();
  if (seat >= 0) {
    resume(member, seat);
    catch_up(from, seat, !resumed);
  } else {
    s_.newcomer = in_generation();
  }
}

// The sender's seat stays open: its other workers still run until Stopped.
void Stepper::on_failure(const Failure& failure) {
  s_.failures.note(failure.outcome, explained());
  if (!is_failure(failure.outcome))
    break_generation(Cause::kStoppedByItself, failure.outcome.host + " stopped by itself");
  else
    break_generation(Cause::kFailure, describe(failure.outcome));
}

void Stepper::on_stopped(Seat& seat, const Stopped& stopped) {
  const std::string host = s_.membership->nodes[&seat - s_.seats.data()].host;
  close_seat(&Seat::stopped, seat);
  for (const WorkerOutcome& outcome : stopped.outcomes) {
    s_.failures.note(outcome, explained());
    if (is_failure(outcome) && !outcome.collateral) break_generation(Cause::kFailure, describe(outcome));
  }
  break_generation(Cause::kStoppedByItself, host + " stopped by itself");
}

void Stepper::on_finished(Seat& seat) {
  close_seat(&Seat::finished, seat);
  ++s_.finished_seats;
}

void Stepper::close_seat(bool Seat::*how, Seat& seat) {
  if (seat.open()) --s_.open_seats;
  seat.*how = true;
}

// ---- members that go

// For good.
void Stepper::remove(ConnectionId id, const std::string& how) {
  auto node = s_.members.extract(id);
  if (node.empty()) return;
  const Member& member = node.mapped();
  s_.by_id.erase(member.join.member_id);
  s_.by_node_rank.erase(member.join.node_rank);
  if (member.seat >= 0) expel(member.seat, how);
  if (s_.members.empty() && s_.membership == nullptr && s_.phase == Phase::kGathering)
    s_ = State{};  // nobody is left who knew the run: the next one to join states it anew
  else
    count_changed();
}

// Its connection broke: a seat waits for it a little.
void Stepper::lose_touch(ConnectionId id, const std::string& how) {
  const Member& member = s_.members.at(id);
  const int index = member.seat;
  if (!in_generation() || index < 0) return remove(id, how);
  s_.by_id.erase(member.join.member_id);
  s_.by_node_rank.erase(member.join.node_rank);
  Seat& seat = s_.seats[index];
  seat.member = 0;
  seat.away_until = now_ + kReconnectGrace;
  seat.how_lost = how;
  s_.away[member.join.member_id] = index;
  ++s_.away_seats;
  s_.away_at = std::min(s_.away_at, seat.away_until);
  s_.members.erase(id);
}

// The member with this seat is gone. One that had finished its work is not lost.
void Stepper::expel(int index, const std::string& how) {
  if (!in_generation()) return;
  Seat& seat = s_.seats[index];
  const bool ran = seat.open();
  close_seat(&Seat::gone, seat);
  seat.member = 0;
  if (seat.finished) return;
  s_.lost_member = true;
  const std::string why = s_.membership->nodes[index].host + " " + how;
  if (s_.phase == Phase::kRunning) return break_generation(Cause::kLoss, why);
  // The loss explains what was seen of it first: victims, or workers that stopped without a reason.
  if (s_.cause == Cause::kFailure && s_.failures.first(true) != nullptr) return;
  if (s_.cause == Cause::kStoppedByItself) s_.cause = Cause::kLoss;
  if (s_.cause == Cause::kFailure || s_.cause == Cause::kLoss) s_.why = why;
  if (ran) order_overdue_stop();
}

// ---- members that come back

// Whether to take a generation over from a coordinator that is gone: the newest that anybody tells of.
bool Stepper::adopts(std::int64_t generation, const Join& join) const {
  const bool known = s_.membership != nullptr && !(s_.adopted && s_.generation < generation);
  return !known && generation > 0 && generation < kMaxGeneration && join.group_rank >= 0 &&
         join.group_rank < join.node_count && join.node_count >= s_.settings->min_nodes &&
         join.node_count <= s_.settings->max_nodes && join.world_size >= join.node_count &&
         join.world_size < kMaxWorldSize && join.restart_count >= 0 && join.membership_changes >= 0;
}

void Stepper::adopt(std::int64_t generation, const Join& join) {
  auto membership = std::make_shared<Membership>();
  membership->generation = s_.generation = generation;
  membership->world_size = join.world_size;
  membership->restart_count = std::min(join.restart_count, s_.settings->max_restarts);
  membership->membership_changes = join.membership_changes;
  for (int rank = 0; rank < join.node_count; ++rank)
    membership->nodes.push_back({"node " + std::to_string(rank), "", 0, 0, ""});
  s_.policy.resume_at(membership->restart_count, join.crash_history);
  membership->crash_history = s_.policy.history();
  s_.membership_changes = join.membership_changes;
  s_.membership = std::move(membership);
  seat({});
  s_.adopted = true;
  s_.started_at = now_ - std::clamp<Millis>(join.age, 0, kLongestAge);
  s_.newcomer = !s_.members.empty();
  Seat away;
  away.away_until = now_ + s_.settings->heartbeat_timeout;
  away.how_lost = "did not come back after the restart of the coordinator";
  s_.seats.assign(static_cast<std::size_t>(join.node_count), away);
  s_.open_seats = s_.away_seats = join.node_count;
  s_.away_at = away.away_until;
}

// The away seat that the member had, or -1.
int Stepper::seat_to_resume(std::int64_t generation, const Join& join) const {
  if (s_.phase == Phase::kOver || s_.away_seats == 0) return -1;
  const auto known = s_.away.find(join.member_id);
  const bool missed_assignment = !s_.adopted && generation < s_.generation;
  if (known != s_.away.end()) return generation == s_.generation || missed_assignment ? known->second : -1;
  const int rank = join.group_rank;
  const bool of_it = s_.adopted && generation == s_.generation && rank >= 0 &&
                     rank < static_cast<int>(s_.seats.size()) && s_.seats[rank].away();
  return of_it && s_.membership->nodes[rank].member_id.empty() ? rank : -1;
}

void Stepper::resume(Member& member, int index) {
  member.seat = member.previous_rank = index;
  s_.seats[index].member = s_.by_id.at(member.join.member_id);
  Node& node = s_.membership->nodes[index];
  if (node.member_id.empty())
    node = {member.join.host, member.join.address, member.join.nproc, member.join.first_rank,
            member.join.member_id};
  no_longer_away(index);
}

// Says again what the member may have missed.
void Stepper::catch_up(ConnectionId id, int index, bool missed_assignment) {
  if (!in_generation()) return;  // the next assignment is on its way
  if (missed_assignment) say(id, Assigned{index, s_.membership});
  const bool ordered = s_.phase == Phase::kStopping && s_.order_at == kNever;
  if (ordered && !s_.seats[index].stopped) say(id, StopOrder{s_.why});
}

void Stepper::no_longer_away(int index) {
  Seat& seat = s_.seats[index];
  seat.away_until = kNever;
  s_.away.erase(s_.membership->nodes[index].member_id);
  if (--s_.away_seats == 0) s_.away_at = kNever;
}

}  // namespace dtrun::rendezvous
