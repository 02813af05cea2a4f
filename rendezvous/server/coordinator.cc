// The order of things: a connection is known before its first message is taken, and forgotten before the
// state machine hears that it broke, so nothing is sent to it any more. What the state machine says is sent
// before people are told of the event. Keys of an ended run are deleted last.
#include "rendezvous/server/coordinator.h"

#include <set>
#include <utility>

#include "rendezvous/server/run_status.h"
#include "rendezvous/server/strand.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
void Coordinator::opened(ConnectionId id, std::shared_ptr<Connection> connection) {
  connections_.emplace(id, std::move(connection));
}

// An agent may have a coordinator of its own and be a member here: a run does not end with such a one.
void Coordinator::received(Event event) {
  if (auto* join = std::get_if<Join>(&event.body))
    join->hosts = join->hosts && join->member_id == options_.host;
  take(event);
}

void Coordinator::broken(ConnectionId id) {
  connections_.erase(id);
  take({.from = id, .body = StreamBroken{}});
}

Millis Coordinator::tend() {
  if (runs_.next_deadline() <= steady_now()) take({.body = Tick{}});
  return runs_.next_deadline();
}

void Coordinator::take(const Event& event) {
  const std::vector<Action> actions = runs_.step(event, steady_now());
  for (const Action& action : actions) say(action);
  if (options_.notice) tell_news(actions);
  members_.store(runs_.members());
  if (!waiters_.empty()) tell_waiters();
  if (options_.notice && !std::holds_alternative<Heartbeat>(event.body)) tell_people();
  for (const std::string& run : runs_.take_ended())
    if (options_.ended) options_.ended(run);
}

void Coordinator::say(const Action& action) {
  const auto connection = connections_.find(action.to);
  if (connection == connections_.end()) return;
  if (const auto* close = std::get_if<Close>(&action.body)) return connection->second->close(close->abort);
  v1::FromCoordinator message = to_message(action);
  if (message.has_welcome()) {
    message.mutable_welcome()->set_separate(options_.separate);
    message.mutable_welcome()->set_instance(options_.instance);
  }
  connection->second->send(std::move(message));
}

// What its members are told in this step. Who left or was lost is in the line on the run itself, below.
void Coordinator::tell_news(const std::vector<Action>& actions) {
  std::set<std::string> told;
  for (const Action& action : actions) {
    const auto* news = std::get_if<News>(&action.body);
    if (news == nullptr || news->age > 0 || news->kind == News::kLeft || news->kind == News::kLost) continue;
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
  tell_waiters();
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

v1::StatusReply Coordinator::status(const std::string& run_id) const {
  std::vector<const State*> wanted;
  if (!run_id.empty()) {
    if (const State* one = find(run_id)) wanted.push_back(one);
  } else {
    for (const auto& [run, state] : runs_.states())
      if (state.settings) wanted.push_back(&state);
    for (const State* ended : recently_ended()) wanted.push_back(ended);
  }
  v1::StatusReply reply;
  for (const State* state : wanted) *reply.add_runs() = status_of(*state, steady_now());
  return reply;
}

}  // namespace dtrun::rendezvous
