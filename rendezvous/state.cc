#include "rendezvous/state.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>
#include <utility>

#include "proto/exit_codes.h"
#include "rendezvous/ranks.h"

namespace dtrun::rendezvous {
namespace {

constexpr Millis kAnnounceEvery = 5000;
// Thousands of agents that join within a moment are told the count a few times, not thousands of times each.
constexpr Millis kAnnounceGap = 100;
// Workers that were told to stop agree with their peers on a last step and save it: the peers get this long
// to do the same before they are ordered to stop.
constexpr Millis kStopTogether = 10000;
// How long all members that stopped by themselves wait for the one that was told to, to leave.
constexpr Millis kSettle = 2000;
// A member's "newest generation" is believed up to here; nothing real comes near it.
constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 40;

std::string seconds(Millis duration) {
  const Millis tenths = duration / 100;
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
  return text + " s";
}

std::string count_of(std::size_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// One step: the state, the time and what is to be said.
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
  std::optional<Rejected> refusal(const Join& join);
  void admit(ConnectionId from, std::int64_t generation, const Join& join);
  void reject(ConnectionId to, Rejected rejected);
  void remove(ConnectionId id, const std::string& how);
  void vacate(const Member& member, const std::string& how);
  Seat* seat_of(ConnectionId from, std::int64_t generation);
  void close_seat(bool Seat::*how, Seat& seat);

  // What follows from the state and the time.
  void advance();
  void sweep();
  void conclude();
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
  void end_job(int exit_code, const std::string& reason, const Outcome* first);
  std::string first_reason() const;

  template <typename Body>
  void say(ConnectionId to, Body body) {
    actions_.push_back({to, s_.generation, std::move(body)});
  }
  void count_changed() {
    s_.announce_at = std::min(s_.announce_at, std::max(now_, s_.announced + kAnnounceGap));
  }
  bool everybody_finished() const { return s_.finished_seats == static_cast<int>(s_.seats.size()); }
  int joined() const { return static_cast<int>(s_.members.size()); }

  State& s_;
  const Millis now_;
  std::vector<Action> actions_;
};

// ---- events

void Stepper::handle(const Event& event) {
  if (const auto* join = std::get_if<Join>(&event.body)) return on_join(event.from, event.generation, *join);
  const auto member = s_.members.find(event.from);
  if (member == s_.members.end()) return;  // refused, replaced or gone before
  if (const auto* broken = std::get_if<StreamBroken>(&event.body))
    return remove(event.from, broken->why.empty() ? "lost its connection" : broken->why);
  member->second.last_seen = now_;
  if (const auto* leave = std::get_if<Leave>(&event.body)) {
    const char* name = leave->signal != 0 ? sigabbrev_np(leave->signal) : nullptr;
    return remove(event.from, name != nullptr ? "left (told to by SIG" + std::string(name) + ")" : "left");
  }
  Seat* seat = seat_of(event.from, event.generation);
  if (seat == nullptr) return;
  if (const auto* failure = std::get_if<Failure>(&event.body)) on_failure(*failure);
  if (const auto* stopped = std::get_if<Stopped>(&event.body)) on_stopped(*seat, *stopped);
  if (std::holds_alternative<Finished>(event.body)) on_finished(*seat);
}

// The sender's open seat in the generation that it speaks of; null if that is over, or not its own.
Seat* Stepper::seat_of(ConnectionId from, std::int64_t generation) {
  if (s_.phase != Phase::kRunning && s_.phase != Phase::kStopping) return nullptr;
  const int seat = s_.members.at(from).seat;
  if (generation != s_.generation || seat < 0 || !s_.seats[seat].open()) return nullptr;
  return &s_.seats[seat];
}

void Stepper::on_join(ConnectionId from, std::int64_t generation, const Join& join) {
  const auto known = s_.by_id.find(join.member_id);
  if (known != s_.by_id.end()) {
    // The same agent came back before its old stream was seen to break.
    const ConnectionId old = known->second;
    if (old != from) say(old, Close{true});
    remove(old, "reconnected");
  }
  if (s_.members.contains(from)) return;  // a second member on one stream
  if (auto rejected = refusal(join)) return reject(from, *std::move(rejected));
  admit(from, generation, join);
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
    s_.join_deadline = now_ + join.join_timeout;
  }
  // A coordinator that was itself restarted goes on counting where its members were.
  if (s_.membership == nullptr && generation < kMaxGeneration)
    s_.generation = std::max(s_.generation, generation);
  Member member{join, s_.joins++, now_, -1, -1};
  if (generation == s_.generation && join.group_rank >= 0) member.previous_rank = join.group_rank;
  s_.members.emplace(from, std::move(member));
  s_.by_id[join.member_id] = from;
  if (join.node_rank >= 0) s_.by_node_rank[join.node_rank] = from;
  s_.sweep_at = std::min(s_.sweep_at, now_ + s_.settings->heartbeat_timeout);
  say(from, Welcome{join.address, std::max<Millis>(1, s_.settings->heartbeat_timeout / 3)});
  count_changed();
  // Work that is nearly done isn't interrupted for a newcomer.
  const bool room = static_cast<int>(s_.seats.size()) < s_.settings->max_nodes && s_.finished_seats == 0;
  if (s_.phase == Phase::kRunning && room) break_generation(Cause::kNewcomer, join.host + " joined");
}

// The sender's seat stays open: its other workers still run until Stopped.
void Stepper::on_failure(const Failure& failure) {
  s_.failures.note(failure.outcome, s_.phase == Phase::kStopping && s_.cause != Cause::kFailure);
  if (!is_failure(failure.outcome))
    break_generation(Cause::kStoppedByItself, failure.outcome.host + " stopped by itself");
  else
    break_generation(Cause::kFailure, describe(failure.outcome));
}

void Stepper::on_stopped(Seat& seat, const Stopped& stopped) {
  const std::string host = s_.membership->nodes[&seat - s_.seats.data()].host;
  close_seat(&Seat::stopped, seat);
  for (const Outcome& outcome : stopped.outcomes) {
    s_.failures.note(outcome, s_.phase == Phase::kStopping && s_.cause != Cause::kFailure);
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

void Stepper::remove(ConnectionId id, const std::string& how) {
  auto node = s_.members.extract(id);
  if (node.empty()) return;
  const Member& member = node.mapped();
  s_.by_id.erase(member.join.member_id);
  s_.by_node_rank.erase(member.join.node_rank);
  if (member.seat >= 0) vacate(member, how);
  if (s_.members.empty() && s_.membership == nullptr && s_.phase == Phase::kGathering)
    s_ = State{};  // nobody is left who knew the run: the next one to join states it anew
  else
    count_changed();
}

// A member with a seat is gone. One that had finished its work is not lost.
void Stepper::vacate(const Member& member, const std::string& how) {
  if (s_.phase != Phase::kRunning && s_.phase != Phase::kStopping) return;
  Seat& seat = s_.seats[member.seat];
  const bool ran = seat.open();
  close_seat(&Seat::gone, seat);
  if (seat.finished) return;
  s_.lost_member = true;
  const std::string why = member.join.host + " " + how;
  if (s_.phase == Phase::kRunning) return break_generation(Cause::kLoss, why);
  // The loss explains what was seen of it first: victims, or workers that stopped without a reason.
  if (s_.cause == Cause::kFailure && s_.failures.first(true) != nullptr) return;
  if (s_.cause == Cause::kStoppedByItself) s_.cause = Cause::kLoss;
  if (s_.cause == Cause::kFailure || s_.cause == Cause::kLoss) s_.why = why;
  if (ran) order_overdue_stop();
}

// ---- what follows

void Stepper::advance() {
  sweep();
  if (s_.phase == Phase::kRunning && everybody_finished())
    end_job(kExitOk, "all workers of " + count_of(s_.seats.size(), "node") + " succeeded", nullptr);
  if (s_.phase == Phase::kStopping && now_ >= s_.order_at) order_stop();
  if (s_.phase == Phase::kStopping && s_.open_seats == 0) conclude();
  if (s_.phase == Phase::kGathering) gather();
  announce();
}

// Removes members that have been silent for too long.
void Stepper::sweep() {
  if (now_ < s_.sweep_at) return;
  const Millis timeout = s_.settings->heartbeat_timeout;
  std::vector<ConnectionId> silent;
  s_.sweep_at = kNever;
  for (const auto& [id, member] : s_.members) {
    if (member.last_seen + timeout <= now_)
      silent.push_back(id);
    else
      s_.sweep_at = std::min(s_.sweep_at, member.last_seen + timeout);
  }
  for (ConnectionId id : silent) {
    say(id, Close{true});
    remove(id, "was silent for " + seconds(timeout));
  }
}

// Everyone of the broken generation has stopped or is gone: does the job go on?
void Stepper::conclude() {
  if (everybody_finished())
    return end_job(kExitOk, "all workers of " + count_of(s_.seats.size(), "node") + " succeeded", nullptr);
  const Outcome* first = s_.failures.first(s_.lost_member || s_.cause != Cause::kFailure);
  const int max_restarts = s_.settings->max_restarts;
  if (first != nullptr && !first->retryable)
    return end_job(exit_code_of(*first), describe(*first) + ", which a restart would not cure", first);
  if (first != nullptr && s_.restarts >= max_restarts)
    return end_job(exit_code_of(*first),
                   describe(*first) + (max_restarts > 0 ? ", and all restarts are used up" : ""), first);
  if (first == nullptr && settling()) return;
  if (first != nullptr) {
    ++s_.restarts;
    s_.why =
        describe(*first) + ", restart " + std::to_string(s_.restarts) + " of " + std::to_string(max_restarts);
  }
  s_.settle_deadline = s_.order_at = kNever;
  s_.phase = Phase::kGathering;
  s_.join_deadline = now_ + s_.settings->join_timeout;
  count_changed();
}

// True while it is worth waiting for the member that was told to stop, and took its peers along, to leave.
bool Stepper::settling() {
  if (s_.cause != Cause::kStoppedByItself) return false;
  if (s_.settle_deadline == kNever) s_.settle_deadline = now_ + kSettle;
  return now_ < s_.settle_deadline;
}

void Stepper::gather() {
  if (!s_.settings) return;
  const Settings& run = *s_.settings;
  if (joined() < run.min_nodes) {
    s_.last_call = kNever;
    if (now_ >= s_.join_deadline)
      end_job(kExitUnavailable,
              (s_.membership != nullptr ? s_.why + "; " : "") + "only " + std::to_string(joined()) + " of " +
                  count_of(static_cast<std::size_t>(run.min_nodes), "node") + " joined within " +
                  seconds(run.join_timeout),
              nullptr);
    return;
  }
  if (s_.last_call == kNever) s_.last_call = now_ + run.last_call;
  const bool regroups = s_.membership != nullptr;
  if (joined() >= run.max_nodes || regroups || now_ >= std::min(s_.last_call, s_.join_deadline))
    start_generation();
}

// Tells everyone who waits how many have joined.
void Stepper::announce() {
  if (now_ < s_.announce_at) return;
  s_.announce_at = kNever;
  if (s_.phase == Phase::kOver || !s_.settings) return;
  Waiting waiting{joined(), s_.settings->min_nodes, s_.settings->max_nodes, s_.phase == Phase::kRunning};
  for (const auto& [id, member] : s_.members) {
    if (s_.phase != Phase::kGathering && member.seat >= 0) continue;
    say(id, waiting);
    s_.announced = now_;
    s_.announce_at = now_ + kAnnounceEvery;
  }
}

// ---- generations

void Stepper::break_generation(Cause cause, const std::string& why) {
  if (s_.phase == Phase::kStopping && cause != Cause::kStoppedByItself) return order_overdue_stop();
  if (s_.phase != Phase::kRunning) return;
  s_.phase = Phase::kStopping;
  s_.cause = cause;
  s_.why = why;
  if (cause == Cause::kStoppedByItself)
    s_.order_at = now_ + kStopTogether;
  else
    order_stop();
}

void Stepper::order_stop() {
  s_.order_at = kNever;
  for (const Seat& seat : s_.seats)
    if (!seat.gone && !seat.stopped) say(seat.member, StopOrder{s_.why});
}

// Something worse happened while the members were stopping by themselves.
void Stepper::order_overdue_stop() {
  if (s_.order_at != kNever) order_stop();
}

// The members of the next generation, in join order: whoever took part before, then given node ranks, then by
// join order. The rest are spares.
std::vector<ConnectionId> Stepper::choose() const {
  struct Candidate {
    bool newcomer, any_rank;
    std::uint64_t order;
    ConnectionId id;
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, member] : s_.members)
    candidates.push_back({member.seat < 0, member.join.node_rank < 0, member.order, id});
  const auto earlier = [](const Candidate& a, const Candidate& b) { return a.order < b.order; };
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.newcomer, a.any_rank, a.order) < std::tie(b.newcomer, b.any_rank, b.order);
  });
  const auto places = static_cast<std::size_t>(s_.settings->max_nodes);
  if (candidates.size() > places) candidates.resize(places);
  std::sort(candidates.begin(), candidates.end(), earlier);
  std::vector<ConnectionId> chosen;
  for (const Candidate& candidate : candidates) chosen.push_back(candidate.id);
  return chosen;
}

std::string Stepper::first_reason() const {
  const int max = s_.settings->max_nodes;
  if (joined() >= max) return "all " + count_of(static_cast<std::size_t>(max), "node") + " joined";
  return std::to_string(joined()) + " of at most " + count_of(static_cast<std::size_t>(max), "node") +
         " joined before last call ended";
}

void Stepper::start_generation() {
  const std::vector<ConnectionId> chosen = choose();
  std::vector<RankRequest> requests;
  for (ConnectionId id : chosen) {
    const Member& member = s_.members.at(id);
    requests.push_back({member.join.host, member.join.nproc, member.join.node_rank, member.previous_rank});
  }
  const std::vector<Rank> ranks = assign_ranks(requests);

  auto next = std::make_shared<Membership>();
  next->reason = s_.membership == nullptr ? first_reason() : s_.why;
  next->generation = ++s_.generation;
  next->restart_count = s_.restarts;
  next->nodes.resize(chosen.size());
  std::vector<ConnectionId> in_rank_order(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Join& join = s_.members.at(chosen[i]).join;
    next->nodes[ranks[i].group_rank] = {join.host, join.address, join.nproc, ranks[i].first_rank,
                                        join.member_id};
    next->world_size += join.nproc;
    in_rank_order[ranks[i].group_rank] = chosen[i];
  }
  next->master_address = next->nodes.front().address;
  next->master_port = s_.members.at(in_rank_order.front()).join.master_port;
  s_.membership = std::move(next);
  seat(in_rank_order);
}

void Stepper::seat(const std::vector<ConnectionId>& in_rank_order) {
  for (auto& [id, member] : s_.members) member.seat = -1;
  s_.seats.clear();
  for (ConnectionId id : in_rank_order) {
    const int rank = static_cast<int>(s_.seats.size());
    Member& member = s_.members.at(id);
    member.seat = member.previous_rank = rank;
    s_.seats.push_back({id});
    say(id, Assignment{rank, s_.membership});
  }
  s_.phase = Phase::kRunning;
  s_.open_seats = static_cast<int>(s_.seats.size());
  s_.finished_seats = 0;
  s_.failures = {};
  s_.cause = Cause::kNone;
  s_.lost_member = false;
  s_.join_deadline = s_.last_call = kNever;
  s_.announce_at = in_rank_order.size() < s_.members.size() ? now_ : kNever;
}

void Stepper::end_job(int exit_code, const std::string& reason, const Outcome* first) {
  auto result = std::make_shared<JobResult>();
  result->exit_code = exit_code;
  result->reason = s_.why = reason;
  result->restart_count = s_.restarts;
  if (exit_code != kExitOk) result->followers = s_.failures.followers(first);
  if (first != nullptr) result->first_failure = std::make_shared<Outcome>(*first);
  for (const auto& [id, member] : s_.members) say(id, JobEnd{result});
  s_.phase = Phase::kOver;
  s_.join_deadline = s_.last_call = s_.order_at = s_.settle_deadline = s_.announce_at = kNever;
}

}  // namespace

std::vector<Action> step(State& state, const Event& event, Millis now) {
  return Stepper(state, now).run(event);
}

Millis next_deadline(const State& state) {
  return std::min({state.join_deadline, state.last_call, state.order_at, state.settle_deadline,
                   state.sweep_at, state.announce_at});
}

}  // namespace dtrun::rendezvous
