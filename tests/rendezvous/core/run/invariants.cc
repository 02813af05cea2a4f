#include "tests/rendezvous/core/run/invariants.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace dtrun::rendezvous {
namespace {

template <typename Body>
int count(const std::vector<Action>& actions) {
  int found = 0;
  for (const Action& action : actions) found += std::holds_alternative<Body>(action.body);
  return found;
}

// Every member is found by each of its keys, and is the only one.
std::string check_members(const Members& members) {
  for (const auto& [connection, member] : members) {
    const Join& join = member.join;
    if (members.connection_of(join.member_id) != connection)
      return "member " + join.member_id + " is not where its id says";
    if (join.node_rank >= 0 && members.with_node_rank(join.node_rank) != &member)
      return "member " + join.member_id + " is not where its node rank says";
  }
  return "";
}

// The seats counted anew, and each compared with its member.
std::string check_seats(const State& state) {
  const Seats& seats = state.current.seats;
  int open = 0;
  int finished = 0;
  int away = 0;
  int taken = 0;
  const bool in_generation = state.phase == Phase::kRunning || state.phase == Phase::kStopping;
  for (int rank = 0; rank < seats.size(); ++rank) {
    const Seat& seat = seats[rank];
    open += seat.open();
    finished += seat.finished;
    away += seat.away.has_value();
    taken += seat.member.has_value();
    if (seat.away && seat.away->until < seats.deadline()) return "an away seat's end is overslept";
    if (seat.away && !seat.away->member_id.empty() && seats.away_seat_of(seat.away->member_id) != rank)
      return "an away seat is not where its member's id says";
    if (in_generation && seat.member.has_value() == (seat.gone || seat.away))
      return "a seat is taken and free";
    const Member* member = in_generation && seat.member ? state.members.find(*seat.member) : nullptr;
    if (in_generation && seat.member && (member == nullptr || member->seat != rank))
      return "a seat's member is gone unnoticed";
  }
  if (away == 0 && seats.deadline() != kNever) return "nobody is away, but somebody is waited for";
  if (open != seats.open() || finished != seats.finished() || away != seats.away() || taken != seats.taken())
    return "the seats are miscounted";
  return "";
}

// The generation as such: its members and their ranks.
std::string check_membership(const State& state) {
  const Membership& membership = *state.current.membership;
  const int nodes = static_cast<int>(membership.nodes.size());
  // A node whose workers still load sits out.
  const int least = state.settings->in_memory_recovery ? 1 : state.settings->min_nodes;
  if (nodes < least || nodes > state.settings->max_nodes)
    return "a generation of " + std::to_string(nodes) + " nodes";
  std::set<MemberId> ids;
  std::map<std::string, int> last_of_host;
  int first = 0;
  bool given_ranks = false;
  for (int rank = 0; rank < nodes; ++rank) {
    const Node& node = membership.nodes[rank];
    if (!ids.insert(node.member_id).second) return node.member_id + " has two ranks";
    if (node.first_rank != first) return "ranks overlap, or leave a gap";
    first += node.nproc;
    const Member& member = state.members.at(state.members.connection_of(node.member_id).value());
    given_ranks = given_ranks || member.join.node_rank >= 0;
    if (membership.world_size < member.join.least_workers) return "too few workers for a node's memory";
    if (nodes == state.settings->max_nodes && member.join.node_rank >= 0 && member.join.node_rank != rank)
      return node.member_id + " did not get its node rank";
  }
  if (first != membership.world_size) return "the world size is not the sum of nproc";
  for (int rank = 0; !given_ranks && rank < nodes; ++rank) {
    const std::string& host = membership.nodes[rank].host;
    if (last_of_host.contains(host) && last_of_host[host] != rank - 1)
      return "ranks of " + host + " are scattered";
    last_of_host[host] = rank;
  }
  return "";
}

}  // namespace

std::string Invariants::check(const State& state, const Event& event, const std::vector<Action>& actions,
                              Millis now, bool deep) {
  std::string broken = check_progress(state, now);
  if (broken.empty()) broken = check_messages(state, event, actions);
  if (broken.empty()) broken = check_assignments(state, event, actions);
  if (broken.empty()) broken = check_end(state, event, actions);
  if (broken.empty()) broken = check_time(state, now);
  if (broken.empty() && deep) broken = check_members(state.members);
  if (broken.empty() && deep) broken = check_seats(state);
  phase_ = state.phase;
  generation_ = state.generation;
  had_membership_ = state.current.membership != nullptr;
  restarts_ = state.policy.restarts();
  best_step_ = state.policy.history().best_step;
  ended_ = ended_ || count<Ended>(actions) > 0 || state.phase == Phase::kOver;
  counts_time_ = state.settings && state.phase != Phase::kOver;
  spent_ = goodput_of(state, now).total();
  at_ = now;
  return broken;
}

// Each moment of a run is of one kind, and none is forgotten. A run that begins anew, or is taken over, has
// another one's time.
std::string Invariants::check_time(const State& state, Millis now) const {
  const bool anew = state.members.joined_so_far() <= 1;
  if (anew || !state.settings || (state.current.adopted && state.generation != generation_)) return "";
  const double passed = counts_time_ ? static_cast<double>(now - at_) / 1000 : 0;
  const double spent = goodput_of(state, now).total();
  return std::abs(spent - spent_ - passed) <= 1e-9 * (1 + spent) ? "" : "the time by its use is not the time";
}

std::string Invariants::check_progress(const State& state, Millis now) const {
  if (next_deadline(state) <= now) return "a deadline that has passed is still due";
  if (phase_ == Phase::kOver && state.phase != Phase::kOver) return "the job went on after its end";
  // Before the first generation an empty run is forgotten, with the generation that its members had named.
  const bool anew =
      state.members.joined_so_far() == 1;  // a deserted run was replaced; its generations count on
  const std::int64_t reached = anew ? std::max(state.generation, state.newest_seen) : state.generation;
  if (had_membership_ && reached < generation_) return "the generation went back";
  const bool ahead = state.newest_seen >= state.generation - 1;  // a member came from a later one
  if (had_membership_ && state.generation > generation_ + 1 && !ahead) return "a generation was skipped";
  const int restarts = state.policy.restarts();
  const bool counted_on = restarts >= restarts_ && restarts <= restarts_ + 1;
  // A run that all members have left is forgotten when another one begins; an adopted one has its own count.
  if (!counted_on && !anew && !state.current.adopted && state.settings &&
      had_membership_ == (state.current.membership != nullptr))
    return "the restart count jumped";
  // With the best step of its members. The generation after one that is taken over may begin in the same
  // step.
  const bool taken_over =
      anew || state.current.adopted || !state.settings || state.generation > generation_ + 1;
  if (!taken_over && state.policy.history().best_step < best_step_) return "the best step went back";
  if (state.settings && restarts > state.settings->restarts.max_restarts) return "more restarts than allowed";
  return "";
}

std::string Invariants::check_messages(const State& state, const Event& event,
                                       const std::vector<Action>& actions) const {
  std::set<ConnectionId> stopped;
  for (const Action& action : actions) {
    const bool farewell =
        std::holds_alternative<Rejected>(action.body) || std::holds_alternative<Close>(action.body);
    if (!state.members.contains(action.to) && action.to != event.from && !farewell &&
        !std::holds_alternative<StopOrder>(action.body))
      return "something was said to an unauthenticated peer";
    const auto* order = std::get_if<StopOrder>(&action.body);
    // One that leaves time may be followed by one that does not.
    if (order != nullptr && !order->after_step && !stopped.insert(action.to).second)
      return "a member was told to stop twice in one step";
    const bool missed_it = std::holds_alternative<Join>(event.body) && action.to == event.from &&
                           std::holds_alternative<Ended>(action.body);
    if (phase_ == Phase::kOver && !farewell && !missed_it) return "something was said after the end";
  }
  return "";
}

std::string Invariants::check_assignments(const State& state, const Event& event,
                                          const std::vector<Action>& actions) const {
  const int assigned = count<Assigned>(actions);
  const Generation& current = state.current;
  const bool formed = current.membership != nullptr && current.membership->generation > generation_;
  if (current.adopted) return assigned == 0 ? "" : "an adopted generation was assigned";
  const bool caught_up = assigned == 1 && std::holds_alternative<Join>(event.body);
  if (!formed) return assigned == 0 || caught_up ? "" : "an assignment without a new generation";
  if (phase_ == Phase::kRunning && state.phase == Phase::kRunning && current.seats.size() == 0)
    return "nobody runs";
  const int again = std::holds_alternative<Join>(event.body) ? 1 : 0;  // to one that missed the one before
  const int nodes = static_cast<int>(current.membership->nodes.size());
  if (assigned < nodes || assigned > nodes + again) return "a member was left without assignment";
  std::set<int> ranks;
  for (const Action& action : actions) {
    const auto* assignment = std::get_if<Assigned>(&action.body);
    if (assignment == nullptr || assignment->membership != current.membership) continue;
    if (!ranks.insert(assignment->group_rank).second) return "two members share a rank";
    if (action.generation != state.generation) return "an assignment names another generation";
    const Node& node = current.membership->nodes.at(assignment->group_rank);
    if (state.members.connection_of(node.member_id) != action.to)
      return "an assignment went to the wrong member";
  }
  return check_membership(state);
}

std::string Invariants::check_end(const State& state, const Event& event,
                                  const std::vector<Action>& actions) const {
  const int ends = count<Ended>(actions);
  if (ends == 0) return "";
  if (phase_ == Phase::kOver && ends == 1 && std::holds_alternative<Join>(event.body)) return "";
  if (ended_) return "the job ended twice";
  if (state.phase != Phase::kOver) return "the job was said to end but goes on";
  if (ends != state.members.size()) return "not everybody was told of the end";
  for (const Action& action : actions) {
    const auto* end = std::get_if<Ended>(&action.body);
    if (end == nullptr) continue;
    const JobEnd& result = *end->result;
    if (result.first_failure && result.exit_code == 0) return "a failure ended with exit code 0";
    if (!result.first_failure && result.exit_code != 0 && result.exit_code != 69)
      return "exit code " + std::to_string(result.exit_code) + " without a first failure";
  }
  return "";
}

}  // namespace dtrun::rendezvous
