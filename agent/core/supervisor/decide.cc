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
// the job from any state. Disconnected ends nothing by itself: workers run on until link_deadline() has
// passed.
#include "agent/core/supervisor/decide.h"

#include <utility>

#include "agent/core/supervisor/step.h"

namespace dtrun::agent {

void Step::on(const event::Tick&) {
  if (s.ended) return;
  if (due(s.link.heartbeat_at)) beat();
  if (due(s.link.tell_at)) tell_lost();
  if (due(s.group.notice_at)) tell_why_stopping();
  if (due(s.group.pause_at)) pause_workers(s.group.why_stopping);
  if (due(s.group.kill_at)) kill_workers();
  if (due(s.announce_at)) announce_leave();
  if (due(s.group.broken_at)) cause_unknown();
  if (due(s.group.look_until)) end_hang();
  if (due(s.notice_at)) show_wait_status(true);
  check_link();
  check_members();
}

State initial_state(Settings settings, Millis now) {
  State state;
  state.settings = std::move(settings);
  state.workers.resize(static_cast<std::size_t>(state.settings.nproc));
  state.started_at = now;
  return state;
}

std::vector<Action> decide(State& state, const Event& event, Millis now) {
  Step step(state, now);
  std::visit([&](const auto& e) { step.on(e); }, event);
  step.end_unstarted();
  return step.take();
}

std::optional<Millis> next_deadline(const State& s) {
  std::optional<Millis> next;
  auto consider = [&](const std::optional<Millis>& at) {
    if (at && (!next || *at < *next)) next = at;
  };
  if (s.ended) return next;
  consider(s.link.heartbeat_at);
  consider(s.group.notice_at);
  consider(s.group.pause_at);
  consider(s.group.kill_at);
  consider(s.announce_at);
  consider(s.group.broken_at);
  consider(s.group.look_until);
  consider(s.notice_at);
  consider(s.members_notice_at);
  consider(s.members_deadline);
  if (!s.link.connected && !s.ending()) {
    consider(s.link_deadline());
    consider(s.link.tell_at);
  }
  return next;
}

bool hangs_matter(const State& state) { return !state.group.stopping && !state.group.look_until; }

}  // namespace dtrun::agent
