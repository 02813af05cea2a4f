// The order of things for one event:
//  1. A tick goes to each run that has something due.
//  2. A late member of an ended run receives the result, and the event ends here.
//  3. The run is found: by the connection, or by the run id of a Join.
//  4. A connection that broke is forgotten, and so is its Join if that was kept for the next run.
//  5. A new agent's Join to a run that is over is kept for the next run.
//  6. The run's state machine takes the event. If the run is over then and all have left, it has ended, and
//     the Joins that were kept begin the next run.
#include "rendezvous/core/run/runs.h"

#include <algorithm>

namespace dtrun::rendezvous {
namespace {

// Limit of all ended runs together, in members; the oldest are dropped first.
constexpr std::size_t kMaxEnded = 20000;
// A failed worker's last words weigh as much as several members.
constexpr std::size_t kOutcomeSize = 8;
// So many points of a curve weigh as much as a member.
constexpr std::size_t kPointsOfMember = 8;
// If a coordinator went before it told the end of a run, members come to its successor for this long.
constexpr Millis kTellRestored = 3000;

// Names of more nodes would make the record large.
constexpr std::size_t kNamed = 4096;

std::vector<std::string> hosts_of(const State& state) {
  if (state.current.membership == nullptr) return state.inherited.hosts;
  const std::vector<Node>& nodes = state.current.membership->nodes;
  if (nodes.size() > kNamed) return {};
  std::vector<std::string> hosts;
  for (const Node& node : nodes) {
    const bool inherits = node.member_id.empty() && state.inherited.generation == state.generation &&
                          hosts.size() < state.inherited.hosts.size();
    hosts.push_back(!node.member_id.empty() ? node.host
                    : inherits              ? state.inherited.hosts[hosts.size()]
                                            : "");
  }
  return hosts;
}

RunRecord record_of(const State& state, Millis now) {
  const auto leads = [](const auto& member) { return member.second.join.hosts; };
  const auto leader = std::find_if(state.members.begin(), state.members.end(), leads);
  return {.run_id = state.settings->run_id,
          .generation = std::max(state.generation, state.newest_seen),
          .end = state.result,
          .hosts = hosts_of(state),
          .leader = leader != state.members.end() ? leader->second.join.host : "",
          .missing = state.news.missing(now, RecentNews::kKept),
          .changes = state.news.changes()};
}

void inherit(const RunRecord& record, Millis now, State* state) {
  state->newest_seen = record.generation;
  state->inherited = {.generation = record.generation, .hosts = record.hosts, .leader = record.leader};
  state->news.restore(record.missing, record.changes, now);
}

std::size_t size_of(const State& ended) {
  const JobEnd& result = *ended.result;
  const std::size_t outcomes = result.followers.size() + (result.first_failure ? 1 : 0);
  return ended.ever_met.size() + kOutcomeSize * outcomes + ended.history.points() / kPointsOfMember;
}

}  // namespace

// Id of the run that the event belongs to; "" if it cannot be known.
std::string Runs::run_of(const Event& event) {
  if (!many_) return "only";
  const auto known = run_of_.find(event.from);
  if (known != run_of_.end()) return known->second;
  const auto* join = std::get_if<Join>(&event.body);
  if (join == nullptr || join->run_id.empty()) return "";
  return run_of_[event.from] = join->run_id;
}

bool same_numbers(const RunRecord& one, const RunRecord& other) {
  return one.run_id == other.run_id && one.generation == other.generation && one.end == other.end;
}

bool same_facts(const RunRecord& one, const RunRecord& other) {
  return same_numbers(one, other) && one.hosts == other.hosts && one.leader == other.leader &&
         one.changes == other.changes;
}

std::vector<Action> Runs::step(const Event& event, Millis now) {
  std::vector<Action> actions;
  forget_old(now);
  if (std::holds_alternative<Tick>(event.body)) {
    std::vector<std::string> due;
    for (const auto& [run, state] : states_)
      if (rendezvous::next_deadline(state) <= now) due.push_back(run);
    for (const std::string& run : due) {
      for (Action& action : rendezvous::step(states_.at(run), event, now))
        actions.push_back(std::move(action));
      end_if_over(run, now, &actions);
    }
    return actions;
  }
  if (tell_late(event, &actions)) return actions;
  const std::string run = run_of(event);
  if (std::holds_alternative<StreamBroken>(event.body)) {
    run_of_.erase(event.from);
    for (auto& [name, joins] : kept_)
      std::erase_if(joins, [&](const Event& join) { return join.from == event.from; });
  }
  if (run.empty() || keep_for_next(run, event)) return actions;
  if (!states_.contains(run)) {
    const auto* join = std::get_if<Join>(&event.body);
    if (join == nullptr) return actions;
    const auto known = restored_.find(join->run_id);
    if (known != restored_.end()) inherit(restored_now(known->second, now), now, &states_[run]);
  }
  states_[run].outlives_host = outlive_host_;
  actions = rendezvous::step(states_[run], event, now);
  tell_of_last(run, event, now, &actions);
  end_if_over(run, now, &actions);
  return actions;
}

// Nodes that run one job after another don't end a job in the same moment. So an agent that is new to a run
// that is over belongs to the next run. If this coordinator ends with the run, the agent looks for the next
// coordinator by itself.
bool Runs::keep_for_next(const std::string& run, const Event& event) {
  const auto* join = std::get_if<Join>(&event.body);
  const auto state = states_.find(run);
  if (join == nullptr || state == states_.end() || state->second.phase != Phase::kOver) return false;
  if (event.generation != 0 || state->second.ever_met.contains(join->member_id)) return false;
  kept_[run].push_back(event);
  return true;
}

// Tells the result to a member of an ended run, which was out of touch at the end. False if it is none.
bool Runs::tell_late(const Event& event, std::vector<Action>* actions) {
  const auto* join = std::get_if<Join>(&event.body);
  if (join == nullptr) return false;
  const auto tell = [&](std::int64_t generation, const std::shared_ptr<const JobEnd>& result) {
    actions->push_back({.to = event.from, .generation = generation, .body = rendezvous::Ended{result}});
    actions->push_back({.to = event.from, .generation = generation, .body = Close{}});
    return true;
  };
  // An earlier coordinator knew the end of this run: its members come with a generation of that run.
  const auto before = ends_restored_.find(join->run_id);
  if (before != ends_restored_.end() && event.generation > 0 && event.generation <= before->second.generation)
    return tell(before->second.generation, before->second.end);
  const auto known = ended_run_of_.find(join->member_id);
  return known != ended_run_of_.end() && tell(known->second->generation, known->second->result);
}

// The ages of its news have grown since restore().
RunRecord Runs::restored_now(RunRecord record, Millis now) const {
  for (News& news : record.missing) news.age += now - restored_at_;
  return record;
}

std::vector<RunRecord> Runs::records(Millis now) const {
  std::vector<RunRecord> records;
  for (const auto& [run, state] : states_)
    if (state.settings) records.push_back(record_of(state, now));
  for (const auto& state : ended_)
    if (now - state->over_at < kRecentlyEnded)
      records.push_back(
          {.run_id = state->settings->run_id, .generation = state->generation, .end = state->result});
  if (now - restored_at_ < kRecentlyEnded)
    for (const auto& [run, record] : ends_restored_) records.push_back(record);
  for (const auto& [run, record] : restored_)
    if (!states_.contains(run)) records.push_back(restored_now(record, now));
  return records;
}

void Runs::restore(const std::vector<RunRecord>& records, Millis now) {
  restored_at_ = now;
  for (const RunRecord& record : records) {
    if (record.end)
      ends_restored_[record.run_id] = record;
    else
      restored_.insert_or_assign(record.run_id, record);
  }
}

bool Runs::has_end_to_tell(Millis now) const {
  return !ends_restored_.empty() && now - restored_at_ < kTellRestored;
}

// A node that comes too late for a run waits for the next one of that name. That may be a mistake.
void Runs::tell_of_last(const std::string& run, const Event& event, Millis now,
                        std::vector<Action>* actions) {
  const State* last = newest_ended(run);
  const State& state = states_.at(run);
  const bool begins = state.phase == Phase::kGathering && state.current.membership == nullptr;
  if (last == nullptr || !begins || !std::holds_alternative<Join>(event.body)) return;
  const Millis age = now - last->over_at;
  if (age >= kRecentlyEnded || !state.members.contains(event.from)) return;
  const std::string exit_code = std::to_string(last->result->exit_code);
  // Filled where it stays: GCC 14 takes a variant with a News for uninitialised where it is moved.
  Action& told = actions->emplace_back();
  told.to = event.from;
  told.generation = state.generation;
  told.body =
      News{.kind = News::kNote,
           .host = "",
           .text = "waiting for the next run " + run + ": the last one ended with exit code " + exit_code,
           .age = age};
}

void Runs::end_if_over(const std::string& run, Millis now, std::vector<Action>* actions) {
  State& state = states_.at(run);
  const bool over = state.phase == Phase::kOver && state.members.empty() && state.current.seats.away() == 0;
  if (!many_ || (!over && state.settings)) return;
  if (over) keep(std::move(state));
  std::erase_if(run_of_, [&](const auto& entry) { return entry.second == run; });
  states_.erase(run);
  newly_ended_.push_back(run);
  begin_next(run, now, actions);
}

void Runs::keep(State state) {
  ended_size_ += size_of(state);
  ended_.push_back(std::make_shared<const State>(std::move(state)));
  newest_ended_[ended_.back()->settings->run_id] = ended_.back();
  for (const MemberId& id : ended_.back()->ever_met) ended_run_of_[id] = ended_.back();
}

const State* Runs::newest_ended(const std::string& run_id) const {
  const auto found = newest_ended_.find(run_id);
  return found != newest_ended_.end() ? found->second.get() : nullptr;
}

void Runs::forget_old(Millis now) {
  while (!ended_.empty()) {
    const State& oldest = *ended_.front();
    const bool too_many = ended_size_ > kMaxEnded && ended_.size() > 1;
    if (!too_many && now - oldest.over_at < kKeepEnded) return;
    ended_size_ -= size_of(oldest);
    if (newest_ended(oldest.settings->run_id) == &oldest) newest_ended_.erase(oldest.settings->run_id);
    for (const MemberId& id : oldest.ever_met) ended_run_of_.erase(id);
    ended_.pop_front();
  }
}

void Runs::begin_next(const std::string& run, Millis now, std::vector<Action>* actions) {
  const auto kept = kept_.extract(run);
  if (kept.empty()) return;
  for (const Event& join : kept.mapped())
    for (Action& action : step(join, now)) actions->push_back(std::move(action));
}

Millis Runs::next_deadline() const {
  Millis next = kNever;
  for (const auto& [run, state] : states_) next = std::min(next, rendezvous::next_deadline(state));
  return next;
}

int Runs::members() const {
  int count = 0;
  for (const auto& [run, state] : states_) count += state.members.size() + state.current.seats.away();
  return count;
}

}  // namespace dtrun::rendezvous
