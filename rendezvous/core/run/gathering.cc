#include "rendezvous/core/run/gathering.h"

#include <algorithm>
#include <utility>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "rendezvous/core/run/rank_assignment.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kLoadingTold = 200;  // bytes
constexpr Millis kAnnounceEvery = 5000;    // at least, when the count stays the same

// Why the workers of a generation that begins now would be too few for the memory of a node, whose part of
// the work grows as others go; "" if they are enough. Few jobs ask: ranks are dealt out for those alone,
// since this is looked at whenever a node comes.
std::string short_of_workers(const Members& members, int max_nodes) {
  if (std::ranges::none_of(members, [](const auto& member) { return member.second.join.least_workers > 1; }))
    return "";
  const RankAssignment next = line_up(members, max_nodes);
  const Join* most = nullptr;
  for (const ConnectionId id : next.members) {
    const Join& join = members.at(id).join;
    if (most == nullptr || join.least_workers > most->least_workers) most = &join;
  }
  if (most == nullptr || most->least_workers <= next.world_size) return "";
  return "with " + counted(next.world_size, "worker") + " the part of " + most->host +
         " does not fit its memory, which is enough from " + counted(most->least_workers, "worker") + " on";
}

}  // namespace

// A node has joined that the running generation has room for, or a member has replaced workers that it lost.
// Work that is nearly done is not interrupted, and a member that is only out of touch keeps its place.
void Gathering::take_newcomer() {
  Generation& current = s_.current;
  if (s_.phase != Phase::kRunning || !current.newcomer || current.seats.away() > 0) return;
  current.newcomer = false;
  if (current.seats.finished() > 0) return;
  const bool room = current.seats.size() < s_.settings->max_nodes;
  for (const auto& [id, member] : s_.members) {
    const int has = member.seat ? current.membership->nodes[*member.seat].nproc : 0;
    if (member.workers <= has || (!member.seat && !room)) continue;
    const bool was_here = member.join.in_memory_recovery && (member.seat || member.previous_rank);
    const std::string& host = member.join.host;
    return was_here ? stopping_.break_generation(Cause::kWorkersBack, host + " has its workers again")
                    : stopping_.break_generation(Cause::kNewcomer,
                                                 host + (member.back ? Turn::kIsBack : " joined"));
  }
}

void Gathering::gather() {
  if (!s_.settings || stopping_.ends_by_hand()) return;
  const Settings& run = *s_.settings;
  Deadlines& due = s_.deadlines;
  due.pausing = kNever;
  if (s_.host_gone) {  // what follows is the next coordinator's
    for (Millis* const passed : {&due.join, &due.last_call, &due.restart})
      if (*passed <= now_) *passed = kNever;
    return;
  }
  if (due.restart != kNever && now_ < due.restart) return;
  due.restart = kNever;
  if (s_.current.seats.away() > 0) return;  // they are back, or given up, within a moment
  const bool regroups = s_.current.membership != nullptr;
  if (s_.members.size() < run.min_nodes) {
    due.last_call = kNever;
    if (now_ >= due.join) stopping_.end_job(kExitUnavailable, too_few(), nullptr);
    return;
  }
  if (awaits_ready()) return;
  const std::string few = short_of_workers(s_.members, run.max_nodes);
  if (few != s_.short_of_workers) turn_.count_changed();
  s_.short_of_workers = few;
  if (!few.empty()) {
    due.last_call = kNever;
    if (now_ >= due.join)
      stopping_.end_job(kExitUnavailable, few + ", and no more came within " + seconds_text(run.join_timeout),
                        nullptr);
    return;
  }
  if (due.last_call == kNever) due.last_call = now_ + run.last_call;
  if (s_.members.size() >= run.max_nodes || regroups || now_ >= std::min(due.last_call, due.join))
    start_generation();
}

// Some of the minimum of nodes came back with workers that are pausing: the next generation includes these
// nodes.
bool Gathering::awaits_ready() {
  int ready = 0;
  Millis until = 0;
  for (const auto& [id, member] : s_.members) {
    ready += member.workers > 0;
    if (member.workers == 0) until = std::max(until, member.ready_by);
  }
  until = std::min(until, s_.deadlines.join);
  if (ready == 0 || ready >= s_.settings->min_nodes || now_ >= until) return false;
  s_.deadlines.pausing = until;
  return true;
}

// The reason why the wait for nodes is over: the number of nodes that are there, and what is known of the
// others.
std::string Gathering::too_few() const {
  const Settings& run = *s_.settings;
  std::string text = "only " + std::to_string(s_.members.size()) + " of " + counted(run.min_nodes, "node") +
                     " joined within " + seconds_text(run.join_timeout);
  const std::vector<News> missing = s_.news.missing(now_, kMissingTold);
  const std::string& why = s_.current.why;
  const auto told = [&](const News& news) { return news.text == why; };
  if (s_.current.membership != nullptr && std::none_of(missing.begin(), missing.end(), told))
    text = why + "; " + text;
  for (const News& news : missing)
    text += "; " + news.text + ", " + seconds_text(news.age / 1000 * 1000) + " ago";
  return text;
}

std::string Gathering::reason_to_start(const RankAssignment& rank_assignment) const {
  const bool regroups = s_.current.membership != nullptr;
  const bool below = static_cast<int>(rank_assignment.members.size()) < s_.settings->min_nodes;
  if (regroups && below && !s_.current.worker_failure) return who_loads();
  if (regroups) return s_.current.came_back.empty() ? s_.current.why : s_.current.came_back;
  const int max = s_.settings->max_nodes;
  const int joined = s_.members.size();
  if (joined >= max && max == 1) return "its one node joined";
  if (joined >= max) return "all " + counted(max, "node") + " joined";
  return std::to_string(joined) + " of at most " + counted(max, "node") + " joined before last call ended";
}

// The minimum of nodes is there, but some of them cannot take part yet.
std::string Gathering::who_loads() const {
  std::string hosts;
  for (const auto& [id, member] : s_.members)
    if (member.workers == 0) hosts += (hosts.empty() ? "" : ", ") + member.join.host;
  return "the workers of " + shortened(hosts, kLoadingTold) + " are not ready yet";
}

void Gathering::start_generation() {
  RankAssignment rank_assignment = line_up(s_.members, s_.settings->max_nodes);
  const bool regroups = s_.current.membership != nullptr;
  const bool same_nodes = s_.current.worker_failure || s_.current.cause == Cause::kWorkersBack;
  if (regroups && !same_nodes) ++s_.membership_changes;
  s_.generation = std::max(s_.generation, s_.newest_seen) + 1;

  auto membership = std::make_shared<Membership>();
  membership->reason = reason_to_start(rank_assignment);
  membership->generation = s_.generation;
  membership->world_size = rank_assignment.world_size;
  membership->nodes = std::move(rank_assignment.nodes);
  membership->restart_count = s_.policy.restarts();
  membership->membership_changes = s_.membership_changes;
  membership->crash_history = s_.policy.history();
  membership->goodput = goodput_of(s_, now_);
  membership->master_address = membership->nodes.front().address;
  membership->master_port = s_.members.at(rank_assignment.members.front()).join.master_port;
  Generation next;
  next.membership = membership;
  next.started_at = now_;
  next.seats = Seats(rank_assignment.members);
  turn_.begin(std::move(next));
  for (int rank = 0; rank < s_.current.seats.size(); ++rank) {
    const ConnectionId id = rank_assignment.members[rank];
    Member& member = s_.members.at(id);
    member.seat = member.previous_rank = rank;
    turn_.say(id, Assigned{.group_rank = rank, .membership = membership});
  }
  if (s_.current.seats.size() < s_.members.size()) s_.deadlines.announce = now_;
}

// Tells all members that wait how many have joined.
void Gathering::announce() {
  if (now_ < s_.deadlines.announce) return;
  s_.deadlines.announce = kNever;
  if (s_.phase == Phase::kOver || !s_.settings) return;
  if (turn_.in_generation() && !turn_.somebody_waits()) return;
  WaitStatus waiting{.joined = s_.members.size(),
                     .min_nodes = s_.settings->min_nodes,
                     .max_nodes = s_.settings->max_nodes,
                     .run_goes_on = s_.phase == Phase::kRunning,
                     .restart_in = 0,
                     .reason = "",
                     .missing = {},
                     .left = 0,
                     .away = turn_.in_generation() ? s_.current.seats.away() : 0,
                     .outlives = std::ranges::any_of(
                         s_.members, [](const auto& member) { return member.second.report.outlives; }),
                     .short_of_workers = ""};
  if (s_.phase == Phase::kGathering) waiting.short_of_workers = s_.short_of_workers;
  if (s_.phase == Phase::kGathering && s_.deadlines.join != kNever) {
    waiting.left = std::max<Millis>(0, std::min(s_.deadlines.join, s_.deadlines.last_call) - now_);
    waiting.missing = s_.news.missing(now_, kMissingTold);
    for (News& news : waiting.missing) news.text.clear();
  }
  if (s_.deadlines.restart != kNever) {
    waiting.restart_in = s_.deadlines.restart - now_;
    waiting.reason = s_.current.why;
  }
  for (const auto& [id, member] : s_.members) {
    if (s_.phase != Phase::kGathering && member.seat) continue;
    turn_.say(id, waiting);
    s_.announced = now_;
    s_.deadlines.announce = now_ + std::max(kAnnounceEvery, announce_gap(s_.members.size()));
  }
}

}  // namespace dtrun::rendezvous
