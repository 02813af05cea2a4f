// What follows from the coordinator's state and the time: who is given up, whether a broken generation's job
// goes on, when the next one starts and who takes part.
#include <tuple>

#include "proto/core/exit_codes.h"
#include "rendezvous/core/ranks.h"
#include "rendezvous/core/stepper.h"

namespace dtrun::rendezvous {
namespace {

// Agents that join within a moment are told the count once the rush is over, not once for each that joins.
// The gap between two counts grows with the number of those who are told, so that about one message in a
// millisecond is the most that is said, whatever it is good for; but not so far that nothing would be heard.
constexpr Millis kAnnounceGap = 100;
constexpr Millis kLongestAnnounceGap = 10000;
constexpr Millis kAnnounceEvery = 5000;  // at least, when the count stays the same

Millis announce_gap(int members) { return std::min(kLongestAnnounceGap, kAnnounceGap + members); }
// Workers that were told to stop agree with their peers on a last step and save it: the peers get this long
// to do the same before they are ordered to stop.
constexpr Millis kStopTogether = 10000;
// How long all members that stopped by themselves wait for the one that was told to, to leave.
constexpr Millis kSettle = 2000;

std::string seconds(Millis duration) {
  const Millis tenths = duration / 100;
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
  return text + " s";
}

std::string count_of(std::size_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

void Stepper::count_changed() { s_.announce_at = std::max(now_, s_.announced + announce_gap(joined())); }

void Stepper::advance() {
  sweep();
  give_up_away();
  take_newcomer();
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
  for (auto& [id, member] : s_.members) {
    const bool overdue = overdue_at(member.last_seen) <= now_;
    if (overdue && member.overdue_at <= member.last_seen) member.overdue_at = now_;
    const Millis next = overdue ? std::max(member.overdue_at + hear_out(), member.last_seen + timeout)
                                : overdue_at(member.last_seen);
    if (next <= now_)
      silent.push_back(id);
    else
      s_.sweep_at = std::min(s_.sweep_at, next);
  }
  for (ConnectionId id : silent) {
    say(id, Close{true});
    remove(id, "was silent for " + seconds(timeout));
  }
}

// Gives up the members that did not come back in time.
void Stepper::give_up_away() {
  if (now_ < s_.away_at) return;
  s_.away_at = kNever;
  for (std::size_t i = 0; i < s_.seats.size(); ++i) {
    Seat& seat = s_.seats[i];
    if (!seat.away()) continue;
    if (now_ < seat.away_until) {
      s_.away_at = std::min(s_.away_at, seat.away_until);
      continue;
    }
    const Millis others = s_.away_at;
    no_longer_away(static_cast<int>(i));
    s_.away_at = s_.away_seats > 0 ? others : kNever;
    expel(static_cast<int>(i), seat.how_lost);
  }
}

// Somebody joined whom the running generation has room for. Work that is nearly done isn't interrupted, and
// who is only out of touch keeps its place.
void Stepper::take_newcomer() {
  if (s_.phase != Phase::kRunning || !s_.newcomer || s_.away_seats > 0) return;
  const bool room = static_cast<int>(s_.seats.size()) < s_.settings->max_nodes && s_.finished_seats == 0;
  s_.newcomer = false;
  const auto waits = [](const auto& member) { return member.second.seat < 0; };
  const auto newcomer = std::find_if(s_.members.begin(), s_.members.end(), waits);
  if (room && newcomer != s_.members.end())
    break_generation(Cause::kNewcomer, newcomer->second.join.host + " joined");
}

// Everyone of the broken generation has stopped or is gone: does the job go on?
void Stepper::conclude() {
  if (everybody_finished())
    return end_job(kExitOk, "all workers of " + count_of(s_.seats.size(), "node") + " succeeded", nullptr);
  const WorkerOutcome* first = s_.failures.first(s_.lost_member || s_.cause != Cause::kFailure);
  if (first == nullptr) {
    if (!settling()) gather_again(0);
    return;
  }
  const RestartPolicy::Verdict verdict =
      s_.policy.judge(*first, s_.settings->max_restarts, now_ - s_.started_at, s_.step);
  if (!verdict.restart) return end_job(exit_code_of(*first), verdict.reason, first);
  s_.why = verdict.reason;
  s_.worker_failure = true;
  gather_again(verdict.delay);
}

void Stepper::gather_again(Millis delay) {
  s_.settle_deadline = s_.order_at = kNever;
  s_.phase = Phase::kGathering;
  s_.join_deadline = now_ + delay + s_.settings->join_timeout;
  s_.restart_at = delay > 0 ? now_ + delay : kNever;
  if (delay > 0) s_.announced = -kNever;  // who waits is told at once
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
  if (s_.restart_at != kNever && now_ < s_.restart_at) return;
  s_.restart_at = kNever;
  if (s_.away_seats > 0) return;  // they are back, or given up, within a moment
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
  Waiting waiting{joined(), s_.settings->min_nodes, s_.settings->max_nodes, s_.phase == Phase::kRunning, 0,
                  ""};
  if (s_.restart_at != kNever) {
    waiting.restart_in = s_.restart_at - now_;
    waiting.reason = s_.why;
  }
  for (const auto& [id, member] : s_.members) {
    if (s_.phase != Phase::kGathering && member.seat >= 0) continue;
    say(id, waiting);
    s_.announced = now_;
    s_.announce_at = now_ + std::max(kAnnounceEvery, announce_gap(joined()));
  }
}

// ---- generations

void Stepper::break_generation(Cause cause, const std::string& why) {
  if (s_.phase == Phase::kStopping && cause != Cause::kStoppedByItself) return order_overdue_stop();
  if (s_.phase != Phase::kRunning) return;
  s_.phase = Phase::kStopping;
  s_.cause = cause;
  s_.why = why;
  s_.worker_failure = false;
  const Millis last = now_ + kReturnWhileStopping;
  for (Seat& seat : s_.seats)
    if (seat.away()) seat.away_until = std::min(seat.away_until, last);
  if (s_.away_seats > 0) s_.away_at = std::min(s_.away_at, last);
  if (cause == Cause::kStoppedByItself)
    s_.order_at = now_ + kStopTogether;
  else
    order_stop();
}

void Stepper::order_stop() {
  s_.order_at = kNever;
  for (const Seat& seat : s_.seats)
    if (!seat.gone && !seat.stopped && !seat.away()) say(seat.member, StopOrder{s_.why});
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
  if (joined() >= max && max == 1) return "its one node joined";
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
  if (s_.membership != nullptr && !s_.worker_failure) ++s_.membership_changes;
  next->generation = s_.generation = std::max(s_.generation, s_.newest_seen) + 1;
  next->restart_count = s_.policy.restarts();
  next->membership_changes = s_.membership_changes;
  next->crash_history = s_.policy.history();
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
    s_.seats.push_back({id, false, false, false, kNever, ""});
    say(id, Assigned{rank, s_.membership});
  }
  s_.phase = Phase::kRunning;
  s_.open_seats = static_cast<int>(s_.seats.size());
  s_.finished_seats = 0;
  s_.failures = {};
  s_.cause = Cause::kNone;
  s_.lost_member = s_.worker_failure = s_.adopted = false;
  s_.started_at = now_;
  s_.step = 0;
  s_.away.clear();
  s_.away_seats = 0;
  s_.away_at = kNever;
  s_.newcomer = false;
  s_.join_deadline = s_.last_call = kNever;
  s_.announce_at = in_rank_order.size() < s_.members.size() ? now_ : kNever;
}

void Stepper::end_job(int exit_code, const std::string& reason, const WorkerOutcome* first) {
  auto result = std::make_shared<JobEnd>();
  result->exit_code = exit_code;
  result->reason = s_.why = reason;
  result->restart_count = s_.policy.restarts();
  result->membership_changes = s_.membership_changes;
  if (exit_code != kExitOk) result->followers = s_.failures.followers(first);
  if (result->followers.size() > kMaxFollowers) {
    result->more_followers = static_cast<int>(result->followers.size() - kMaxFollowers);
    result->followers.resize(kMaxFollowers);
  }
  if (first != nullptr) result->first_failure = *first;
  for (const auto& [id, member] : s_.members) say(id, Ended{result});
  s_.result = std::move(result);
  s_.phase = Phase::kOver;
  s_.join_deadline = s_.last_call = s_.restart_at = s_.order_at = s_.settle_deadline = s_.announce_at =
      kNever;
}

}  // namespace dtrun::rendezvous
