// The order of things: a connection is known before its first message is taken, and forgotten before the
// state machine hears that it broke, so nothing is sent to it any more. The state machine's messages are sent
// before people are told of the event. Keys of an ended run are deleted last.
#include "rendezvous/server/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/ids.h"
#include "rendezvous/server/run_status.h"
#include "rendezvous/server/strand.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/election.h"

namespace dtrun::rendezvous {
namespace {

// The interval at which to check whether members still come for an end that an earlier coordinator knew.
constexpr Millis kLookAgain = 100;

std::int64_t wall_now() { return static_cast<std::int64_t>(1000 * wall_seconds()); }

// The ages of missing nodes went on since another host wrote the record.
std::vector<RunRecord> aged(std::vector<RunRecord> record) {
  for (RunRecord& run : record)
    for (News& news : run.missing)
      if (run.written > 0) news.age += std::max<Millis>(0, wall_now() - run.written);
  return record;
}

// A sentence; empty if the run can be traced. `state`: null if it is not known.
std::string why_untraced(const State* state, const std::string& run_id) {
  if (state == nullptr) return "no run " + run_id + " here";
  if (state->phase == Phase::kOver)
    return "run " + run_id + " is over (exit code " + std::to_string(state->result->exit_code) +
           "): only a run that goes on can be traced";
  const auto is_program = [](const auto& member) { return !member.second.join.command.empty(); };
  if (std::ranges::any_of(state->members, is_program))
    return "run " + run_id + " is a program of its own: only dtrun's own trainer says what it does";
  return "";
}

bool changes_record(const Action& action) {
  const auto* news = std::get_if<News>(&action.body);
  return std::holds_alternative<Assigned>(action.body) || std::holds_alternative<Ended>(action.body) ||
         (news != nullptr && news->kind != News::kNote);
}

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      runs_(options_.separate, options_.fence != nullptr),
      instance_(random_id(8)),
      leading_(options_.fence == nullptr) {}

void Coordinator::lead(const election::BecomeLeader& lead) {
  forget();
  record_ = aged(runs_from_text(lead.record));
  runs_.restore(record_, steady_now());
  if (!lead.again) instance_ = random_id(8);
  term_ = lead.term;
  version_ = binding_ = written_ = 1;
  leading_ = true;
  members_.store(runs_.has_end_to_tell(steady_now()) ? 1 : 0);
  if (options_.notice) options_.notice("this host is the coordinator now");
  if (options_.leads) options_.leads();
}

void Coordinator::step_down() {
  if (leading_ && !is_over()) forget();
}

void Coordinator::forget() {
  if (std::exchange(leading_, false) && options_.notice)
    options_.notice("this host is the coordinator no more");
  runs_ = Runs(options_.separate, options_.fence != nullptr);
  unsaid_.clear();
  told_.clear();
  members_.store(0);
  for (const auto& [id, connection] : std::exchange(connections_, {})) connection->close(true);
  for (const auto& [id, waiter] : std::exchange(waiters_, {})) waiter.told({});  // they ask the next one
  traces_.forget_all();
}

void Coordinator::written(std::int64_t version) {
  written_ = std::max(written_, version);
  if (!leads()) return;
  while (!unsaid_.empty() && unsaid_.front().version <= written_) {
    say(unsaid_.front().action);
    unsaid_.pop_front();
  }
  if (!waiters_.empty()) tell_waiters();
}

// The only run, and a majority knows it.
bool Coordinator::is_over() const {
  const auto over = [](const auto& run) { return run.second.phase == Phase::kOver; };
  return !options_.separate && is_written() && !runs_.states().empty() &&
         std::ranges::all_of(runs_.states(), over);
}

bool Coordinator::leads() {
  return options_.fence == nullptr || (leading_ && (is_over() || options_.fence->acts(term_)));
}

// A lease that is over is over for good, also if votes come that would have prolonged it.
bool Coordinator::may_act() {
  if (leads()) return true;
  if (leading_) {
    options_.fence->resign(term_);
    forget();
  }
  return false;
}

bool Coordinator::opened(ConnectionId id, std::shared_ptr<AgentStream> connection) {
  if (!may_act()) return false;
  connections_.emplace(id, std::move(connection));
  return true;
}

// An agent may have a coordinator of its own and be a member here: a run does not end with that agent.
void Coordinator::received(Event event) {
  if (auto* join = std::get_if<Join>(&event.body)) {
    join->hosts = join->hosts && join->member_id == options_.host;
    if (options_.fence != nullptr && join->term > term_) return options_.fence->heard_of(join->term);
  }
  take(event);
}

void Coordinator::broken(ConnectionId id) {
  connections_.erase(id);
  traces_.gone(id);
  take({.from = id, .body = StreamBroken{}});
}

Millis Coordinator::tend() {
  const Millis traces = traces_.tend(steady_now());
  if (!leading_) return traces;
  if (runs_.next_deadline() <= steady_now()) take({.body = Tick{}});
  const bool waits = runs_.has_end_to_tell(steady_now());
  if (!waits) members_.store(runs_.members());
  return std::min({runs_.next_deadline(), waits ? steady_now() + kLookAgain : kNever, traces});
}

// Messages wait until a majority has the numbers of generations and ends of runs, so a later coordinator
// cannot contradict them. The record's facts for people delay no message.
void Coordinator::keep_record(const Event& event, const std::vector<Action>& actions) {
  if (options_.fence == nullptr) return;
  const auto* join = std::get_if<Join>(&event.body);
  if (!std::ranges::any_of(actions, changes_record) && (join == nullptr || !join->hosts)) return;
  std::vector<RunRecord> record = runs_.records(steady_now());
  if (std::ranges::equal(record, record_, same_facts)) return;
  ++version_;
  if (!std::ranges::equal(record, record_, same_numbers)) binding_ = version_;
  for (RunRecord& run : record) run.written = wall_now();
  record_ = std::move(record);
  options_.fence->write(term_, text_of_runs(record_));
}

void Coordinator::take(const Event& event) {
  if (!may_act()) return;
  const std::vector<Action> actions = runs_.step(event, steady_now());
  keep_record(event, actions);
  if (!may_act()) return;
  for (const Action& action : actions) {
    if (is_written())
      say(action);
    else
      unsaid_.push_back({binding_, action});
  }
  if (options_.notice) tell_news(actions);
  members_.store(runs_.members() + (runs_.has_end_to_tell(steady_now()) ? 1 : 0));
  if (!waiters_.empty() && is_written()) tell_waiters();
  if (options_.notice && !std::holds_alternative<Heartbeat>(event.body)) tell_people();
  for (const std::string& run : runs_.take_ended())
    if (options_.ended) options_.ended(run);
}

void Coordinator::say(const Action& action) {
  const auto connection = connections_.find(action.to);
  if (connection == connections_.end()) return;
  if (const auto* close = std::get_if<Close>(&action.body)) return connection->second->close(close->abort);
  v1::FromCoordinator message = to_message(action);
  message.set_term(term_);
  if (message.has_join_ack()) {
    message.mutable_join_ack()->set_separate(options_.separate);
    message.mutable_join_ack()->set_instance(instance_);
  }
  connection->second->send(std::move(message));
}

// The news that members receive in this step. Nodes that left or were lost are in the line on the run, below.
void Coordinator::tell_news(const std::vector<Action>& actions) {
  std::set<std::string> told;
  for (const Action& action : actions) {
    const auto* news = std::get_if<News>(&action.body);
    if (news == nullptr || news->age > 0 || news->kind == News::kBack || news->kind == News::kLeft ||
        news->kind == News::kLost)
      continue;
    for (const auto& [run, state] : runs_.states())
      if (state.members.contains(action.to) && told.insert(run + news->text).second)
        options_.notice("run " + run + ": " + news->text);
  }
}

// One line whenever a run enters another phase or generation.
void Coordinator::tell_people() {
  for (const auto& [run, state] : runs_.states()) {
    const std::pair<Phase, std::int64_t> stands{state.phase, state.generation};
    const auto known = told_.find(run);
    if (known != told_.end() && known->second == stands) continue;
    told_[run] = stands;
    if (state.phase == Phase::kRunning)
      options_.notice("run " + run + ": generation " + std::to_string(state.generation) + " with " +
                      std::to_string(state.current.seats.size()) + " nodes" +
                      (state.current.adopted ? ", taken over as it runs"
                                             : " (" + state.current.membership->reason + ")"));
    if (state.phase == Phase::kStopping) options_.notice("run " + run + ": stopping, " + state.current.why);
    if (state.phase == Phase::kOver)
      options_.notice("run " + run + ": over with exit code " + std::to_string(state.result->exit_code) +
                      ", " + state.current.why);
  }
  std::erase_if(told_, [this](const auto& told) { return !runs_.states().contains(told.first); });
}

const State* Coordinator::find(const std::string& run_id) const {
  for (const auto& [run, state] : runs_.states())
    if (state.settings && state.settings->run_id == run_id) return &state;
  return runs_.newest_ended(run_id);
}

// The newest of each name that is not at work again, newest first.
std::vector<const State*> Coordinator::recently_ended() const {
  std::vector<const State*> found;
  std::set<std::string> seen;
  for (const auto& [run, state] : runs_.states()) seen.insert(run);
  const auto& ended = runs_.ended();
  for (auto state = ended.rbegin(); state != ended.rend(); ++state) {
    if (steady_now() - (*state)->over_at >= kRecentlyEnded) break;
    if (seen.insert((*state)->settings->run_id).second) found.push_back(state->get());
  }
  return found;
}

void Coordinator::await_end(ConnectionId id, const std::string& run_id, Told told) {
  waiters_[id] = {run_id, std::move(told)};
  if (is_written()) tell_waiters();
}

void Coordinator::tell_waiters() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const State* state = find(waiter->second.run_id);
    if (state != nullptr && state->phase != Phase::kOver) {
      ++waiter;
      continue;
    }
    waiter->second.told(status(waiter->second.run_id));
    waiter = waiters_.erase(waiter);
  }
}

void Coordinator::trace(const v1::TraceRequest& request, Traces::Told told) {
  const State* const state = find(request.run_id());
  v1::TraceReply reply;
  reply.set_refusal(why_untraced(state, request.run_id()));
  if (!reply.refusal().empty()) return told(std::move(reply));
  reply.set_generation(state->generation);
  if (state->current.membership) reply.set_world_size(state->current.membership->world_size);
  std::map<ConnectionId, std::string> nodes;
  for (const auto& [id, member] : state->members)
    if (connections_.contains(id)) nodes[id] = member.join.host;
  const std::map<ConnectionId, std::string> ordered = nodes;
  traces_.begin(std::move(reply), std::move(nodes), steady_now(), std::move(told));
  for (const auto& [id, host] : ordered) {
    v1::FromCoordinator message;
    message.set_term(term_);
    v1::TraceOrder* const order = message.mutable_trace();
    order->set_trace(request.trace());
    order->set_end(request.end());
    order->set_sent_at(steady_nanoseconds());
    connections_.at(id)->send(std::move(message));
  }
}

void Coordinator::traced(ConnectionId id, v1::TracePart part) {
  traces_.answered(id, std::move(part), steady_nanoseconds());
}

std::vector<const State*> Coordinator::wanted(const std::string& run_id) const {
  std::vector<const State*> wanted;
  if (!run_id.empty()) {
    if (const State* one = find(run_id)) wanted.push_back(one);
    return wanted;
  }
  for (const auto& [run, state] : runs_.states())
    if (state.settings) wanted.push_back(&state);
  for (const State* ended : recently_ended()) wanted.push_back(ended);
  return wanted;
}

v1::RunStatus Coordinator::status(const State& state) const {
  v1::RunStatus status = status_of(state, steady_now());
  if (page_) {
    status.mutable_page()->set_address(page_->address);
    status.mutable_page()->set_host(page_->host);
    status.mutable_page()->set_token(page_->token(status.run_id()));
  }
  return status;
}

v1::StatusReply Coordinator::status(const std::string& run_id) const {
  v1::StatusReply reply;
  for (const State* state : wanted(run_id)) *reply.add_runs() = status(*state);
  return reply;
}

std::vector<RunView> Coordinator::look(const std::string& run_id, const HistoryMark& mark) const {
  std::vector<RunView> views;
  for (const State* state : wanted(run_id)) {
    const History& history = state->history;
    RunView view{
        .status = status(*state),
        .until = {.history = instance_ + "-" + std::to_string(history.began()), .serial = history.serial()},
        .history = {},
        .now = steady_now()};
    const bool follows = mark.history == view.until.history;
    if (!run_id.empty()) view.history = history.newer_than(follows ? mark.serial : 0);
    if (!run_id.empty() && state->settings) {
      view.config = state->settings->job;
      view.command = state->settings->command;
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace dtrun::rendezvous
