// The order of events in an agent's life:
//
//   Opened → SendJoin                     at every connection, so also after a reconnect
//   Connected, JoinAck                    a coordinator; from here on a heartbeat at its interval
//   Waiting …                             until all nodes are there
//   Assigned → StartWorkers               a generation begins
//   WorkerExited with 0, of all           → SendFinished
//   WorkerExited with a failure           → SendFailure, and the other workers are stopped
//   HangFound                             → SendFailure, other nodes look at theirs, then KillHung
//   StopOrder                             another node failed, came or went: workers are stopped
//   the last WorkerExited                 → SendStopped; then Waiting, Assigned, … again
//   Ended → Report or a last line → End   the coordinator's last word
//
// Workers of the built-in trainer outlive generations: told to pause, they keep their trained state, send
// WorkerReady and get their place in the next one. Other programs' workers, and all workers at the end of the
// job, are stopped in three steps: they get SIGTERM (the built-in trainer also a message on its control
// socket), they have shutdown_timeout to end, they are killed. News that come meanwhile (a next generation,
// the job's end, a reason to give up) are kept, and settle() acts on them once no worker runs. A Signal ends
// the job from any state. Disconnected ends nothing by itself: workers run on until connection_deadline() has
// passed, or of a range until parts_at(), and then wait until then.
#include "agent/core/supervisor/decide.h"

#include <utility>

#include "agent/core/supervisor/ending.h"

namespace dtrun::agent {
namespace {

template <typename P, typename E>
concept Takes = requires(P& part, const E& e) {
  part.on(e);
};

// Hands an event to the parts that it concerns: that have an on() for it.
class Dispatcher {
 public:
  Dispatcher(State& state, Millis now)
      : turn_{.state = state, .now = now},
        connection_(turn_, state.connection),
        workers_(turn_, state.workers),
        generation_(turn_, state.generation, connection_, workers_),
        ending_(turn_, state.ending, connection_, generation_) {}

  std::vector<Action> take(const Event& event) {
    std::visit([this](const auto& e) { on(e); }, event);
    settle();
    for (const event::WorkerExited& e : workers_.take_unstarted()) {
      on(e);
      settle();
    }
    return std::move(turn_.actions);
  }

 private:
  template <typename E>
  void on(const E& e) {
    static_assert(Takes<Connection, E> || Takes<Workers, E> || Takes<Generation, E> || Takes<Ending, E>);
    if constexpr (Takes<Connection, E>) connection_.on(e);
    if constexpr (Takes<Workers, E>) workers_.on(e);
    if constexpr (Takes<Generation, E>) generation_.on(e);
    if constexpr (Takes<Ending, E>) ending_.on(e);
  }

  void on(const event::WorkerExited& e) {
    if (const Worker* lost = generation_.on(e)) ending_.on_lost(*lost);
  }
  void on(const event::JoinAck& e) {
    connection_.on(e);
    generation_.on(e);
    if (e.resumed) return;
    settle();  // what runs is over before the node waits for the next generation
    connection_.lose_seat();
    workers_.tell_ready();
  }
  void on(const event::Tick& e) {
    if (turn_.state.ending.ended) return;
    connection_.on(e);
    generation_.on(e);
    settle();
    connection_.remind();
    ending_.on(e);
  }

  void settle() {
    if (std::exchange(turn_.to_settle, false)) ending_.settle();
  }

  Turn turn_;
  Connection connection_;
  Workers workers_;
  Generation generation_;
  Ending ending_;
};

}  // namespace

State initial_state(Settings settings, Millis now) {
  State state;
  state.settings = std::move(settings);
  state.connection.endpoint = state.settings.endpoint;
  for (int local_rank = 0; local_rank < state.settings.nproc; ++local_rank)
    state.workers.all.push_back({.local_rank = local_rank});
  state.started_at = now;
  return state;
}

std::vector<Action> decide(State& state, const Event& event, Millis now) {
  return Dispatcher(state, now).take(event);
}

std::optional<Millis> next_deadline(const State& s) {
  std::optional<Millis> next;
  auto consider = [&](const std::optional<Millis>& at) {
    if (at && (!next || *at < *next)) next = at;
  };
  if (s.ending.ended) return next;
  consider(s.connection.heartbeat_at);
  consider(s.generation.notice_at);
  consider(s.generation.pause_at);
  consider(s.generation.kill_at);
  consider(s.ending.announce_at);
  consider(s.generation.broken_at);
  consider(s.generation.look_until);
  consider(s.connection.notice_at);
  consider(s.ending.members_notice_at);
  consider(s.ending.members_deadline);
  if (!s.connection.connected && !s.is_ending()) {
    consider(s.connection_deadline());
    consider(s.parts_at());
    consider(s.connection.tell_at);
  }
  return next;
}

bool silence_tells(const State& state) {
  return state.settings.builtin || state.workers_outlive() || state.generation.assignment.node_count == 1;
}

// A worker that is stopped because the job or the generation failed takes with it the processes that it
// started: they have received the signal too.
LeftBehindFate fate_of_left_behind(const State& state, bool well, Millis now) {
  const bool failed = state.generation.stopping && state.ending.told_signal == 0;
  if (!well || failed) return {.until = {}, .told = well || !state.generation.stopping};
  return {.until = state.generation.kill_at.value_or(now + state.settings.shutdown_timeout)};
}

bool hangs_matter(const State& state) { return !state.generation.stopping && !state.generation.look_until; }

}  // namespace dtrun::agent
