#include "rendezvous/core/run/joining.h"

#include <algorithm>
#include <utility>

namespace dtrun::rendezvous {
namespace {

// A member's "newest generation" is believed up to here; nothing real comes near it.
constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 40;
constexpr int kMaxWorldSize = 1 << 30;
// A generation that has lasted this long has lasted long enough for everything that asks.
constexpr Millis kLongestAge = 1'000'000'000'000;
// Heartbeats carry the accounts of workers, which are worth more while they are new: each node sends at most
// one a second, and all together at most 200.
constexpr Millis kShortestInterval = 1000;
constexpr Millis kIntervalPerNode = 5;

// At most three intervals fit the silence after which a member is given up.
Millis heartbeat_interval(const Settings& settings) {
  const Millis wanted = std::max(kShortestInterval, kIntervalPerNode * settings.max_nodes);
  return std::max<Millis>(1, std::min(settings.heartbeat_timeout / 3, wanted));
}

// Where pods are replaced a node says which number it has.
bool is_new_pod(const Join& join) { return join.preferred_rank && join.group_rank < 0; }

}  // namespace

void Joining::on_join(ConnectionId from, std::int64_t generation, const Join& join) {
  if (s_.members.contains(from)) return;  // a second member on one stream
  if (const std::optional<ConnectionId> old = s_.members.connection_of(join.member_id)) {
    // The same agent came back before its old stream was seen to break.
    turn_.say(*old, Close{.abort = true});
    leaving_.lose_touch(*old, "reconnected");
  }
  if (tell_result(from, join)) return;
  // The previous run of this name has no member left, and none can come back: a new run may have other
  // settings.
  const bool deserted = s_.members.empty() && s_.current.seats.away() == 0 && s_.phase != Phase::kOver;
  const bool sound = !refuse_malformed(join) && !refuse_other(settings_of(join), join);
  if (deserted && sound && s_.settings && generation == 0 && refuse_other(*s_.settings, join))
    turn_.begin_anew();
  if (const auto refused = refusal(join)) return refuse(from, join, *refused);
  admit(from, generation, join);
}

// A member that missed the job's end is told now.
bool Joining::tell_result(ConnectionId from, const Join& join) {
  if (s_.phase != Phase::kOver || !s_.ever_met.contains(join.member_id)) return false;
  Join late = join;
  late.node_rank = -1;  // it reserves nothing any more
  s_.members.add(from, late, now_);
  s_.deadlines.sweep = std::min(s_.deadlines.sweep, turn_.overdue_at(now_));
  turn_.say(from, Ended{s_.result});
  return true;
}

std::optional<Refusal> Joining::refusal(const Join& join) const {
  if (s_.phase == Phase::kOver)
    return Refusal{
        {.reason = Rejected::kJobOver, .message = "the run is over: " + s_.current.why, .job = ""}};
  if (auto malformed = refuse_malformed(join)) return malformed;
  auto other = s_.settings ? refuse_other(*s_.settings, join) : refuse_other(settings_of(join), join);
  if (other) return other;
  if (const Member* holder = s_.members.with_node_rank(join.node_rank))
    return refuse_node_rank(join.node_rank, holder->join.host);
  return std::nullopt;
}

// All members hear of the refusal: they wait for this node, and its terminal is elsewhere. If the refused
// node hosts the coordinator, the run ends for all.
void Joining::refuse(ConnectionId from, const Join& join, const Refusal& refusal) {
  turn_.say(from, static_cast<const Rejected&>(refusal));
  turn_.say(from, Close{});
  const std::string what = "was refused: " + refusal.to_others;
  if (turn_.ends_with(join)) turn_.host_left(join.host + Turn::kHosts + what);
  turn_.note(News::kRefused, join.host, join.host + " " + what);
  turn_.count_changed();
}

// Some jobs give each node a command of its own: the first difference is enough.
void Joining::tell_other_command(const Join& join) {
  if (s_.told_other_command) return;
  const std::string difference = other_command(*s_.settings, join);
  s_.told_other_command = !difference.empty();
  if (!difference.empty()) turn_.note(News::kNote, join.host, difference);
}

void Joining::admit(ConnectionId from, std::int64_t generation, const Join& join) {
  if (!s_.settings) {
    s_.settings = settings_of(join);
    s_.deadlines.join = now_ + s_.settings->join_timeout;
  }
  if (adopts(generation, join)) adopt(generation, join);
  if (generation < kMaxGeneration) s_.newest_seen = std::max(s_.newest_seen, generation);
  Member& member = s_.members.add(from, join, now_);
  member.join.job = {};  // also in the settings, and it may be long
  member.workers = join.in_memory_recovery ? 0 : join.nproc;
  if (generation > 0 && generation >= s_.generation && join.group_rank >= 0)
    member.previous_rank = join.group_rank;
  s_.ever_met.insert(join.member_id);
  s_.deadlines.sweep = std::min(s_.deadlines.sweep, turn_.overdue_at(now_));
  if (generation == 0 && is_new_pod(join)) give_up_predecessor(join.host);
  const std::optional<int> seat = seat_to_resume(generation, join);
  const bool resumed = seat && generation == s_.generation;
  turn_.say(from, JoinAck{.address = join.address,
                          .heartbeat_interval = heartbeat_interval(*s_.settings),
                          .resumed = resumed});
  turn_.count_changed();
  welcome_back(member, generation, seat.has_value());
  tell_other_command(join);
  if (s_.phase == Phase::kGathering)
    for (News& news : s_.news.missing(now_, kMissingTold)) turn_.say(from, std::move(news));
  if (seat) {
    resume(from, member, *seat);
    member.workers = s_.current.membership->nodes[*seat].nproc;
    catch_up(from, *seat, !resumed);
  } else {
    s_.current.newcomer = turn_.in_generation();
  }
}

// The others hear that a node that they missed is back. Workers that it brings pause first.
void Joining::welcome_back(Member& member, std::int64_t generation, bool seated) {
  const Join& join = member.join;
  const bool was_missed = s_.news.came(join.host);
  if (was_missed) {
    turn_.note(News::kBack, join.host, join.host + Turn::kIsBack);
    if (s_.phase == Phase::kGathering && !s_.current.worker_failure)
      s_.current.came_back = join.host + Turn::kIsBack;
  }
  member.back = (generation > 0 || was_missed) && !seated;
  if (member.back && join.in_memory_recovery && join.workers > 0) member.ready_by = now_ + kReadyAgain;
}

// True if the coordinator takes over the generation that the member says it is part of: it knows none, or
// only an older one that it adopted.
bool Joining::adopts(std::int64_t generation, const Join& join) const {
  const bool newer = s_.current.adopted && s_.generation < generation;
  if (s_.current.membership != nullptr && !newer) return false;
  return generation > 0 && generation < kMaxGeneration && join.group_rank >= 0 &&
         join.group_rank < join.node_count &&
         (join.in_memory_recovery || join.node_count >= s_.settings->min_nodes) &&
         join.node_count <= s_.settings->max_nodes && join.world_size >= join.node_count &&
         join.world_size < kMaxWorldSize && join.restart_count >= 0 && join.membership_changes >= 0;
}

void Joining::adopt(std::int64_t generation, const Join& join) {
  auto membership = std::make_shared<Membership>();
  membership->generation = s_.generation = generation;
  membership->world_size = join.world_size;
  membership->restart_count = std::min(join.restart_count, s_.settings->restarts.max_restarts);
  membership->membership_changes = s_.membership_changes = join.membership_changes;
  membership->nodes.resize(static_cast<std::size_t>(join.node_count));
  const std::vector<std::string>& names =
      s_.inherited.generation == generation ? s_.inherited.hosts : join.seat_hosts;
  for (int rank = 0; rank < join.node_count; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const bool known = at < names.size() && !names[at].empty();
    membership->nodes[at].host = known ? names[at] : "node rank " + std::to_string(rank);
  }
  membership->reason = "the coordinator was restarted, and took the run over as it runs";
  s_.policy.resume_at(membership->restart_count, join.crash_history);
  membership->crash_history = s_.policy.history();
  membership->goodput = within_reason(join.goodput);
  const Millis age = std::clamp<Millis>(join.age, 0, kLongestAge);
  Generation adopted;
  adopted.membership = membership;
  adopted.adopted = true;
  adopted.started_at = now_ - age;
  adopted.time = {.ran = age, .adopted = true};
  adopted.seats = Seats::all_away(join.node_count,
                                  {.until = now_ + s_.settings->heartbeat_timeout,
                                   .how_lost = "did not come back after the restart of the coordinator"});
  adopted.newcomer = !s_.members.empty();
  turn_.begin(std::move(adopted));
  s_.spent = membership->goodput;
  give_up_the_gone();
  for (const auto& [id, member] : s_.members)
    if (is_new_pod(member.join)) give_up_predecessor(member.join.host);
}

// An earlier coordinator saw them go. Two agents of one host cannot be told apart, and are waited for.
void Joining::give_up_the_gone() {
  const std::vector<Node>& nodes = s_.current.membership->nodes;
  for (const News& news : s_.news.missing(now_, RecentNews::kKept)) {
    const auto is_it = [&](const Node& node) { return node.host == news.host; };
    if (news.kind == News::kRefused || std::ranges::count_if(nodes, is_it) != 1) continue;
    const int rank = static_cast<int>(std::ranges::find_if(nodes, is_it) - nodes.begin());
    s_.current.seats.give_up(rank);
    leaving_.evict(rank, news.text);
  }
}

// A pod comes in the place of one that is gone for good, whose name it has.
void Joining::give_up_predecessor(const std::string& host) {
  if (s_.phase == Phase::kOver || s_.current.seats.away() == 0) return;
  const std::vector<Node>& nodes = s_.current.membership->nodes;
  const auto is_it = [&](const Node& node) { return node.host == host; };
  if (std::ranges::count_if(nodes, is_it) != 1) return;
  const int rank = static_cast<int>(std::ranges::find_if(nodes, is_it) - nodes.begin());
  if (!s_.current.seats[rank].away) return;
  s_.current.seats.give_up(rank);
  leaving_.evict(rank, host + " was replaced");
}

// The away seat that the member had.
std::optional<int> Joining::seat_to_resume(std::int64_t generation, const Join& join) const {
  const Generation& current = s_.current;
  if (s_.phase == Phase::kOver || current.seats.away() == 0) return std::nullopt;
  const bool same = generation == s_.generation;
  if (const std::optional<int> known = current.seats.away_seat_of(join.member_id)) {
    const bool missed_assignment = !current.adopted && generation < s_.generation;
    return same || missed_assignment ? known : std::nullopt;
  }
  const int rank = join.group_rank;
  const bool of_it =
      current.adopted && same && rank >= 0 && rank < current.seats.size() && current.seats[rank].away;
  if (!of_it || !current.membership->nodes[rank].member_id.empty()) return std::nullopt;
  return rank;
}

void Joining::resume(ConnectionId id, Member& member, int rank) {
  member.seat = member.previous_rank = rank;
  s_.current.seats.set_back(rank, id);
  const Join& join = member.join;
  Node& node = s_.current.membership->nodes[rank];
  if (node.member_id.empty())
    node = {.host = join.host,
            .address = join.address,
            .nproc = join.workers > 0 ? std::min(join.workers, join.nproc) : join.nproc,
            .first_rank = join.first_rank,
            .member_id = join.member_id};
}

// Sends the member again whatever it may have missed.
void Joining::catch_up(ConnectionId id, int rank, bool missed_assignment) {
  if (!turn_.in_generation()) return;  // the next assignment is on its way
  if (missed_assignment) turn_.say(id, Assigned{.group_rank = rank, .membership = s_.current.membership});
  const bool ordered = s_.phase == Phase::kStopping && s_.deadlines.stop_order == kNever;
  if (ordered && !s_.current.seats[rank].stopped) turn_.say(id, stopping_.stop_order());
}

}  // namespace dtrun::rendezvous
