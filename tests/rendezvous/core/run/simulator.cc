#include "tests/rendezvous/core/run/simulator.h"

#include <algorithm>
#include <queue>
#include <random>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/core/run/state.h"
#include "tests/rendezvous/core/run/invariants.h"

namespace dtrun::rendezvous {
namespace {

constexpr Millis kHeartbeatTimeout = 15000;
constexpr Millis kJoinTimeout = 60000;
constexpr Millis kGiveUp = 24 * 3600 * 1000;  // virtual time; the run hangs
constexpr int kDeepCheckLimit = 64;           // members up to which every step is checked in full

struct Agent {
  MemberId id;
  int lives = 0;  // counts up with every start; timers of an earlier life are void
  bool alive = false;
  bool ended = false;  // heard Ended or a refusal
  ConnectionId connection = 0;
  std::int64_t generation = 0;
  int group_rank = -1;
  int workers = 0;  // of it in the generation, and
  int loaded = 0;   // those and the ones that could be in the next
  int first_rank = 0;
  int node_count = 0;
  int world_size = 0;
  int restart_count = 0;
  CrashHistory crash_history = {};
  Millis assigned_at = 0;
  bool busy = false;      // workers run
  bool finished = false;  // they ended well, or
  bool failed = false;    // they did not; said again after each reconnect
  bool stopped = false;
  std::optional<int> kept = {};  // workers that outlived it
};

struct SimulatedStream {
  int agent = 0;
  bool black_hole = false;
  bool closed = false;  // by the coordinator's side
  Millis last_up = 0;   // a connection delivers in order
  Millis last_down = 0;
};

// The entries of the queue.
struct ToCoordinator {
  Event event;
};
struct ToAgent {
  Action action;
};
struct Broken {
  ConnectionId connection;
};  // as the agent sees it
enum class Timer {
  kStart,
  kConnect,
  kBeat,
  kWorkEnds,
  kStopped,
  kReady,
  kCrash,
  kBreak,
  kRestartCoordinator
};
struct AgentTimer {
  Timer timer;
  int agent = 0;
  int life = 0;
  std::int64_t generation = 0;
};
struct Scheduled {
  Millis at;
  std::int64_t order;  // ties in the order of scheduling
  std::variant<ToCoordinator, ToAgent, Broken, AgentTimer> what;
  bool operator>(const Scheduled& other) const {
    return std::tie(at, order) > std::tie(other.at, other.order);
  }
};

class Simulator {
 public:
  explicit Simulator(const SimSettings& settings) : settings_(settings), random_(settings.seed) {
    agents_.resize(static_cast<std::size_t>(settings.agents));
    for (int i = 0; i < settings.agents; ++i) in(below(settings.join_spread), timer(Timer::kStart, i));
    for (int i = 0; i < settings.crashes; ++i)
      schedule(below(settings.work * 3),
               AgentTimer{.timer = Timer::kCrash, .agent = static_cast<int>(below(settings.agents))});
    for (int i = 0; i < settings.breaks; ++i)
      schedule(below(settings.work * 3),
               AgentTimer{.timer = Timer::kBreak, .agent = static_cast<int>(below(settings.agents))});
    for (int i = 0; i < settings.coordinator_restarts; ++i)
      schedule(below(settings.work * 2), AgentTimer{.timer = Timer::kRestartCoordinator});
  }

  SimResult run() {
    while (result_.broken.empty() && now_ <= kGiveUp) {
      const Millis due = next_deadline(state_);
      const Millis next = queue_.empty() ? kNever : queue_.top().at;
      if (due == kNever && next == kNever) break;
      now_ = std::min(due, next);
      if (due < next) {
        take({.body = Tick{}});
        continue;
      }
      const auto what = queue_.top().what;
      queue_.pop();
      std::visit([this](const auto& known) { happen(known); }, what);
    }
    finish();
    return result_;
  }

 private:
  // ---- chance and time

  Millis below(Millis limit) {
    return static_cast<Millis>(random_() % static_cast<std::uint64_t>(std::max<Millis>(1, limit)));
  }
  bool chance(double share) { return static_cast<double>(random_() >> 11) < share * 9007199254740992.0; }
  Millis delay() { return 1 + (chance(settings_.late_message) ? below(800) : below(20)); }

  template <typename What>
  void schedule(Millis at, What what) {
    queue_.push({.at = at, .order = order_++, .what = std::move(what)});
  }
  template <typename What>
  void in(Millis time, What what) {
    schedule(now_ + time, std::move(what));
  }
  AgentTimer timer(Timer kind, int agent) const {
    const Agent& a = agents_[static_cast<std::size_t>(agent)];
    return {.timer = kind, .agent = agent, .life = a.lives, .generation = a.generation};
  }

  // ---- the coordinator

  void take(const Event& event) {
    const Before before{.generation = state_.generation,
                        .membership_changes = state_.membership_changes,
                        .over = state_.phase == Phase::kOver};
    result_.lost_touch += loses_touch(event);
    const std::vector<Action> actions = step(state_, event, now_);
    const bool deep = state_.members.size() <= kDeepCheckLimit || state_.generation != before.generation;
    result_.broken = invariants_.check(state_, event, actions, now_, deep);
    ++result_.events;
    count(before, event, actions);
    for (const Action& action : actions) say(action);
  }

  // ---- what is counted of its answers

  struct Before {
    std::int64_t generation;
    int membership_changes;
    bool over;
  };

  bool in_generation() const { return state_.phase == Phase::kRunning || state_.phase == Phase::kStopping; }

  // A member of the generation is out of touch from now on, if only until it is heard in the same moment.
  bool loses_touch(const Event& event) const {
    ConnectionId gone = std::holds_alternative<StreamBroken>(event.body) ? event.from : 0;
    if (const auto* join = std::get_if<Join>(&event.body); join != nullptr) {
      gone = state_.members.connection_of(join->member_id).value_or(gone);
    }
    const Member* member = state_.members.find(gone);
    return in_generation() && member != nullptr && member->seat;
  }

  bool resumes(const Before& before, const Event& event, const std::vector<Action>& actions) const {
    if (!std::holds_alternative<Join>(event.body)) return false;
    const auto says_so = [](const Action& action) {
      const auto* join_ack = std::get_if<JoinAck>(&action.body);
      return join_ack != nullptr && join_ack->resumed;
    };
    if (std::any_of(actions.begin(), actions.end(), says_so)) return true;
    const Member* member = state_.members.find(event.from);  // one that missed its assignment
    return state_.generation == before.generation && member != nullptr && member->seat;
  }

  void count(const Before& before, const Event& event, const std::vector<Action>& actions) {
    result_.resumed += resumes(before, event, actions);
    const bool formed = state_.generation > before.generation && !state_.current.adopted;
    if (formed && state_.membership_changes > before.membership_changes) ++result_.regroups;
    if (!before.over && state_.phase == Phase::kOver) result_.away_at_end = state_.current.seats.away();
  }

  void say(const Action& action) {
    SimulatedStream& connection = connections_.at(action.to);
    if (const auto* end = std::get_if<Ended>(&action.body)) {
      result_.exit_code = end->result->exit_code;
      result_.ended_at = now_;
    }
    connection.last_down = std::max(connection.last_down, now_ + delay());
    if (std::holds_alternative<Close>(action.body)) {
      connection.closed = true;
      if (!connection.black_hole) schedule(connection.last_down, Broken{action.to});
    } else if (!connection.black_hole) {
      schedule(connection.last_down, ToAgent{action});
    }
  }

  void happen(const ToCoordinator& message) {
    if (!connections_.at(message.event.from).closed) take(message.event);
  }

  // ---- the network

  void send(Agent& agent, std::int64_t generation, decltype(Event::body) body) {
    SimulatedStream& connection = connections_.at(agent.connection);
    if (connection.black_hole) return;
    connection.last_up = std::max(connection.last_up, now_ + delay());
    if (chance(settings_.silent_loss)) {
      ++result_.injected.silences;
      return lose(agent);
    }
    if (chance(settings_.broken)) {
      ++result_.injected.breaks;
      body = StreamBroken{};
      schedule(connection.last_up, Broken{agent.connection});
    }
    schedule(connection.last_up,
             ToCoordinator{{.from = agent.connection, .generation = generation, .body = std::move(body)}});
  }

  // Messages under way still arrive. One at a time: while the next generation waits for one member, another
  // that loses touch is not waited for.
  void break_connection(const Agent& agent) {
    if (!agent.alive || agent.ended || agent.connection == 0) return;
    SimulatedStream& connection = connections_.at(agent.connection);
    if (connection.black_hole || now_ < next_break_) return;
    next_break_ = now_ + kReconnectGrace;
    ++result_.injected.breaks;
    connection.last_up = std::max(connection.last_up, now_ + delay());
    schedule(connection.last_up, Broken{agent.connection});
    schedule(
        connection.last_up,
        ToCoordinator{{.from = agent.connection, .generation = agent.generation, .body = StreamBroken{}}});
  }

  // From now on nothing passes; the agent notices by its own keep-alive, the coordinator by the missing
  // beats.
  void lose(Agent& agent) {
    connections_.at(agent.connection).black_hole = true;
    in(kHeartbeatTimeout, Broken{agent.connection});
  }

  void happen(const Broken& broken) {
    const int index = connections_.at(broken.connection).agent;
    Agent& agent = agents_[static_cast<std::size_t>(index)];
    if (!agent.alive || agent.ended || agent.connection != broken.connection) return;
    agent.connection = 0;
    in(1 + below(chance(settings_.late_reconnect) ? 2000 : settings_.reconnect),
       timer(Timer::kConnect, index));  // the first attempt, or a later one
  }

  // ---- the agents

  void happen(const AgentTimer& due) {
    Agent& agent = agents_[static_cast<std::size_t>(due.agent)];
    if (due.timer == Timer::kCrash) return crash(agent, due.agent);
    if (due.timer == Timer::kBreak) return break_connection(agent);
    if (due.timer == Timer::kRestartCoordinator) return restart_coordinator();
    if (due.life != agent.lives || agent.ended) return;
    switch (due.timer) {
      case Timer::kStart:
        return start(agent, due.agent);
      case Timer::kConnect:
        return connect(agent, due.agent);
      case Timer::kBeat:
        return beat(agent, due.agent);
      case Timer::kWorkEnds:
        return work_ends(agent, due);
      case Timer::kStopped:
        return stopped(agent, due);
      case Timer::kReady:
        return ready(agent, due.agent);
      case Timer::kCrash:
      case Timer::kBreak:
      case Timer::kRestartCoordinator:
        return;
    }
  }

  void start(Agent& agent, int index) {
    agent = Agent{.id = "agent-" + std::to_string(index) + "." + std::to_string(agent.lives),
                  .lives = agent.lives + 1,
                  .alive = true};
    connect(agent, index);
    in(kHeartbeatTimeout / 3, timer(Timer::kBeat, index));
  }

  void connect(Agent& agent, int index) {
    agent.connection = connections_.size() + 1;
    connections_[agent.connection].agent = index;
    Join join;
    join.run_id = "sim";
    join.member_id = agent.id;
    join.host = "host-" + std::to_string(index / 2);
    join.address = "10.0.0.1";
    join.nproc = nproc_of(index);
    join.in_memory_recovery = settings_.in_memory_recovery;
    join.workers = agent.workers;
    join.least_workers = settings_.least_workers;
    join.min_nodes = settings_.min_nodes;
    join.max_nodes = settings_.max_nodes;
    join.max_restarts = settings_.max_restarts;
    join.join_timeout = kJoinTimeout;
    join.heartbeat_timeout = kHeartbeatTimeout;
    join.group_rank = agent.group_rank;
    join.node_count = agent.node_count;
    join.first_rank = agent.first_rank;
    join.world_size = agent.world_size;
    join.restart_count = agent.restart_count;
    join.crash_history = agent.crash_history;
    join.age = now_ - agent.assigned_at;
    send(agent, agent.generation, join);
  }

  static int nproc_of(int index) { return 1 + index % 2; }

  // Its workers have loaded.
  void ready(Agent& agent, int index) {
    agent.loaded = nproc_of(index);
    if (agent.connection != 0) send(agent, agent.generation, Ready{});
  }

  void beat(Agent& agent, int index) {
    if (agent.connection != 0) send(agent, agent.generation, Heartbeat{});
    in(kHeartbeatTimeout / 3, timer(Timer::kBeat, index));
  }

  void work_ends(Agent& agent, const AgentTimer& due) {
    if (!agent.busy || due.generation != agent.generation) return;
    if (!chance(settings_.worker_failure)) {
      agent.busy = false;
      agent.finished = true;
      if (agent.connection != 0) send(agent, agent.generation, Finished{});
      return;
    }
    agent.failed = true;
    ++result_.injected.failures;
    gives_up_work(agent);
    if (agent.connection != 0) send(agent, agent.generation, Failure{outcome(agent)});
    in(below(2000), timer(Timer::kStopped, due.agent));
  }

  void stopped(Agent& agent, const AgentTimer& due) {
    if (!agent.busy || due.generation != agent.generation) return;
    agent.busy = false;
    agent.stopped = true;
    agent.kept = settings_.in_memory_recovery ? std::optional(agent.loaded - agent.failed) : std::nullopt;
    if (agent.connection != 0) send(agent, agent.generation, stopped_message(agent));
  }

  Stopped stopped_message(const Agent& agent) const { return Stopped{{outcome(agent)}, agent.kept}; }

  // A worker that failed, or one that was stopped by its agent.
  WorkerOutcome outcome(const Agent& agent) const {
    WorkerOutcome outcome;
    outcome.rank = agent.first_rank;
    outcome.host = agent.id;
    outcome.exit_code = 1;
    outcome.collateral = !agent.failed;
    outcome.uptime_s = static_cast<double>(settings_.work) / 2000;
    return outcome;
  }

  // The coordinator answered a join: the work goes on, with messages that may be lost sent again, or is over.
  void acknowledged(Agent& agent, bool resumed) {
    if (!resumed) {
      if (agent.busy) gives_up_work(agent);
      agent.busy = false;
      return;
    }
    if (agent.failed) send(agent, agent.generation, Failure{outcome(agent)});
    if (agent.connection != 0 && agent.finished) send(agent, agent.generation, Finished{});
    if (agent.connection != 0 && agent.stopped) send(agent, agent.generation, stopped_message(agent));
  }

  // That generation cannot succeed any more.
  void gives_up_work(const Agent& agent) {
    result_.injected.hit = std::max(result_.injected.hit, agent.generation);
  }

  void restart_coordinator() {
    if (state_.phase == Phase::kOver) return;
    ++result_.injected.forgotten;
    result_.injected.forgotten_seats += state_.current.seats.size();
    State anew;
    state_ = std::move(anew);
    invariants_ = Invariants{};
    for (auto& [id, connection] : connections_) {
      if (connection.closed) continue;
      connection.closed = true;
      if (!connection.black_hole) in(delay(), Broken{id});
    }
  }

  // Half of the crashes close the connection (the process died), half don't (the machine did).
  void crash(Agent& agent, int index) {
    if (!agent.alive || agent.ended) return;
    ++result_.injected.crashes;
    if (agent.busy) gives_up_work(agent);
    if (agent.connection != 0) {
      if (chance(0.5))
        lose(agent);
      else
        in(delay(), ToCoordinator{{.from = agent.connection, .body = StreamBroken{}}});
    }
    agent.alive = false;
    ++agent.lives;
    if (chance(settings_.restarted)) in(1000 + below(20000), timer(Timer::kStart, index));
  }

  void happen(const ToAgent& message) {
    const SimulatedStream& connection = connections_.at(message.action.to);
    const int index = connection.agent;
    Agent& agent = agents_[static_cast<std::size_t>(index)];
    if (!agent.alive || agent.connection != message.action.to || connection.black_hole) return;
    const auto& body = message.action.body;
    if (std::holds_alternative<Ended>(body) || std::holds_alternative<Rejected>(body)) agent.ended = true;
    if (const auto* join_ack = std::get_if<JoinAck>(&body)) acknowledged(agent, join_ack->resumed);
    if (std::holds_alternative<StopOrder>(body) && message.action.generation == agent.generation)
      in(10 + below(3000), timer(Timer::kStopped, index));
    if (const auto* assignment = std::get_if<Assigned>(&body)) work(agent, index, *assignment);
    const auto* waiting = std::get_if<WaitStatus>(&body);
    if (settings_.in_memory_recovery && waiting != nullptr &&
        (waiting->run_goes_on || !waiting->short_of_workers.empty()))
      in(below(2000), timer(Timer::kReady, index));
  }

  void work(Agent& agent, int index, const Assigned& assignment) {
    if (assignment.membership->generation <= agent.generation) return;  // said again, or late
    agent.generation = assignment.membership->generation;
    agent.group_rank = assignment.group_rank;
    const Node& node = assignment.membership->nodes[static_cast<std::size_t>(agent.group_rank)];
    agent.first_rank = node.first_rank;
    agent.workers = agent.loaded = node.nproc;
    if (agent.workers < nproc_of(index)) in(below(2000), timer(Timer::kReady, index));
    agent.node_count = static_cast<int>(assignment.membership->nodes.size());
    agent.world_size = assignment.membership->world_size;
    agent.restart_count = assignment.membership->restart_count;
    agent.crash_history = assignment.membership->crash_history;
    agent.assigned_at = now_;
    agent.busy = true;
    agent.finished = agent.failed = agent.stopped = false;
    in(settings_.work / 2 + below(settings_.work / 2), timer(Timer::kWorkEnds, index));
  }

  void finish() {
    for (const Agent& agent : agents_) result_.waiting += agent.alive && !agent.ended;
    result_.over = state_.phase == Phase::kOver || !state_.settings;
    result_.generations = state_.generation;
    result_.restarts = state_.policy.restarts();
    result_.adopted = state_.current.adopted;
  }

  const SimSettings settings_;
  std::mt19937_64 random_;
  Millis now_ = 0;
  Millis next_break_ = 0;
  std::int64_t order_ = 0;
  std::priority_queue<Scheduled, std::vector<Scheduled>, std::greater<>> queue_;
  State state_;
  Invariants invariants_;
  std::vector<Agent> agents_;
  std::unordered_map<ConnectionId, SimulatedStream> connections_;
  SimResult result_;
};

}  // namespace

SimResult simulate(const SimSettings& settings) { return Simulator(settings).run(); }

}  // namespace dtrun::rendezvous
