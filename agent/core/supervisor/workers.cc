// This node's workers: how they start, the meaning of their ends, and how they are stopped.
#include <algorithm>
#include <csignal>
#include <functional>
#include <utility>

#include "agent/core/supervisor/notices.h"
#include "agent/core/supervisor/outcome.h"
#include "agent/core/supervisor/step.h"
#include "agent/text/report.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

// From the news of a hang to the end of the workers, the same on all nodes: until then each sees where its
// own stand. A worker that loses a peer no longer stands where it hung.
constexpr Millis kAllLook = 5000;
// If workers take longer than this to end after a signal, other nodes are told why they wait.
constexpr Millis kUnnoticed = 1000;
// A broken collective is rarely the cause. The cause (a peer's death, an order to stop) has this long to
// arrive.
constexpr Millis kCauseWait = 3000;
// If workers end this soon after the request to stop, people need no reason for the wait.
constexpr Millis kSwift = 3000;

}  // namespace

void Step::on(const event::Assigned& e) {
  if (s.ending() || e.assignment.generation <= generation()) return;
  s.next = e.assignment;
  s.waiting.reset();
  s.notice_at.reset();
  if (s.awaited() > 0) halt_workers("a new generation begins");
  settle();
}

void Step::on(const event::StopOrder& e) {
  if (e.generation != generation()) return;
  if (e.look && workers_run() && !s.group.stopping) return look(e.reason);
  if (workers_run()) halt_workers(e.reason, e.after_step);
  settle();
}

// The order also comes to the node that found the hang and has looked at its workers.
void Step::look(const std::string& reason) {
  if (s.group.look_until || s.group.hang_found) return;
  s.group.why_look = reason;
  s.group.look_until = now_ + kAllLook;
  emit(action::LookAtWorkers{kAllLook});
}

void Step::on(const event::HangFound& e) {
  if (e.generation != generation() || s.group.stopping || !workers_run()) return;
  s.group.hang_found = true;
  if (!s.group.failure_sent) report_failure(complete(e.hung.front(), s, false));
  for (const WorkerOutcome& hung : e.hung) ask_gpu(s.workers[static_cast<std::size_t>(hung.local_rank)]);
  if (s.group.assignment.node_count == 1 || s.settings.in_memory_recovery) return end_hang();
  if (!s.group.look_until) s.group.look_until = now_ + kAllLook;
}

void Step::end_hang() {
  s.group.look_until.reset();
  if (s.group.stopping || !workers_run()) return;
  if (s.group.hang_found) return emit(action::KillHung{});
  halt_workers(s.group.why_look);
  settle();
}

void Step::on(const event::WorkerExited& e) {
  Worker* worker = worker_of(e.serial);
  if (worker == nullptr) return;
  worker->stage = Worker::kEnded;
  worker->outcome = complete(e.outcome, s, e.never_ran);
  worker->outcome.gpu = worker->gpu_trouble;
  if (!warm_up_failed(*worker) && !worker->outcome.ok()) failed(*worker, e.never_ran);
  settle();
}

// The failure was told before: nobody waits for the driver of a GPU but this node's last word on the
// generation.
void Step::on(const event::GpuFound& e) {
  Worker* worker = worker_of(e.serial);
  if (worker == nullptr || !std::exchange(worker->gpu_asked, false)) return;
  worker->gpu_trouble = worker->outcome.gpu = e.trouble;
  const auto local_rank = static_cast<int>(worker - s.workers.data());
  if (s.group.reported && s.group.reported->local_rank == local_rank) s.group.reported->gpu = e.trouble;
  settle();
}

void Step::on(const event::GpusFree& e) {
  s.awaits_gpus = false;
  if (!e.note.empty()) print(e.note);
  std::vector<action::Spawn> spawn;
  for (Worker& worker : s.workers)
    if (std::exchange(worker.held, false)) spawn.push_back(spawn_of(worker));
  if (!spawn.empty()) emit(action::WarmUp{std::move(spawn)});
}

void Step::ask_gpu(Worker& worker) {
  if (!s.settings.has_gpu_driver || worker.gpu_asked || !worker.gpu_trouble.empty()) return;
  worker.gpu_asked = true;
  emit(action::AskGpu{.serial = worker.serial, .local_rank = static_cast<int>(&worker - s.workers.data())});
}

// Null if it is of an earlier generation.
Worker* Step::worker_of(int serial) {
  const auto worker = std::ranges::find(s.workers, serial, &Worker::serial);
  return worker != s.workers.end() ? &*worker : nullptr;
}

void Step::on(const event::WorkerCompleted& e) {
  s.completion = e.completion;
  s.steps_redone.progressed(e.completion.first_step, e.completion.step);
}

void Step::on(const event::Signal& e) {
  if (s.ended) return;
  if (s.job_end && !workers_run()) return end(s.job_end->exit_code);
  if (s.told_signal != 0) return again_told(e.number);
  s.told_signal = e.number;
  s.told_at = now_;
  if (workers_run()) {
    tell_why_stopping();
    print(signal_notice(s, now_));
    // dtrun-worker takes SIGTERM as "finish the step, checkpoint, end"; other programs get the signal we got.
    // If other nodes go on, the workers' peers are to pause after the same step, and not to end.
    if (hands_over())
      pause_workers(describe_signal(e.number), true);
    else
      signal_workers(s.settings.builtin ? SIGTERM : e.number);
    begin_grace();
    if (s.group.assignment.node_count > 1) s.announce_at = now_ + kUnnoticed;
  }
  settle();
}

void Step::announce_leave() {
  s.announce_at.reset();
  if (workers_run())
    emit(action::SendLeave{.generation = generation(), .signal = s.told_signal, .soon = true});
}

void Step::signal_workers(int number, std::optional<int> only) {
  s.group.signals.insert(number);
  emit(action::SignalWorkers{.number = number, .only = only});
  for (Worker& worker : s.workers) {
    if (!worker.held || (only && *only != worker.serial)) continue;
    worker.held = false;
    WorkerOutcome outcome;
    outcome.local_rank = static_cast<int>(&worker - s.workers.data());
    outcome.signal = number;
    unstarted_.push_back({.serial = worker.serial, .outcome = std::move(outcome)});
  }
}

void Step::end_unstarted() {
  for (std::size_t i = 0; i < unstarted_.size(); ++i) on(event::WorkerExited(unstarted_[i]));
}

void Step::begin_grace() {
  s.group.stopping = true;
  s.group.broken_at.reset();
  if (!s.group.kill_at) s.group.kill_at = now_ + s.settings.shutdown_timeout;
}

void Step::abort_workers(const std::string& reason) {
  if (!s.settings.builtin || s.group.aborted) return;
  s.group.aborted = true;
  emit(action::AbortWorkers{reason});
}

// The generation is over for this node: nothing of it may go on.
void Step::halt_workers(const std::string& reason, bool after_step) {
  const bool pauses = s.settings.in_memory_recovery && (!s.ending() || s.told_signal != 0);
  pauses ? pause_workers(reason, after_step) : stop_workers(reason);
}

void Step::stop_workers(const std::string& reason) {
  if (!s.settings.in_memory_recovery) abort_workers(reason);
  if (!s.group.stopping) {
    signal_workers(SIGTERM);
    tell_if_slow(reason);
  }
  begin_grace();
}

void Step::tell_if_slow(const std::string& reason) {
  s.group.why_stopping = reason;
  s.group.notice_at = now_ + kSwift;
}

// Tells a user that waits for slow workers, or loses patience with them, why they are being stopped.
void Step::tell_why_stopping() {
  s.group.notice_at.reset();
  if (s.awaited() == 0 || s.group.why_stopping.empty()) return;
  print(stopping_notice(s, now_));
  s.group.why_stopping.clear();
}

void Step::kill_workers() {
  s.group.kill_at.reset();
  const int awaited = s.awaited();
  if (awaited == 0) return;
  print("killing " + counted(awaited, "worker") + " that did not " +
        (awaited < s.running() || s.group.pause != Group::kNone ? "leave the generation" : "end by itself"));
  if (awaited == s.running()) return signal_workers(SIGKILL);
  for (const Worker& worker : s.workers)
    if (worker.stage == Worker::kAtWork) signal_workers(SIGKILL, worker.serial);
}

void Step::again_told(int number) {
  if (now_ - s.told_at < kSameSignal) return;
  if (s.settings.may_be_started_again && is_schedulers(number)) return;
  emit(action::DropOutput{});
  if (s.leaving) return end(*s.leaving);
  s.group.kill_at.reset();
  if (workers_run()) signal_workers(SIGKILL);
}

void Step::failed(Worker& worker, bool never_ran) {
  const WorkerOutcome& outcome = worker.outcome;
  if (s.told_signal != 0) {
    // The step cannot be finished without this worker.
    if (outcome.collateral) return;
    s.settings.in_memory_recovery ? pause_workers("a worker of this node died")
                                  : abort_workers("a worker of this node died");
    return;
  }
  if (s.group.closed) return;  // it waited; the next generation gets another one
  const bool agreed_stop =
      s.settings.builtin && outcome.signal == 0 && outcome.exit_code == kExitWorkerStopped;
  if (agreed_stop && !s.group.stopping) return begin_grace();
  if (!s.group.failure_sent && (!outcome.collateral || !s.group.stopping)) report_failure(outcome);
  if (!outcome.collateral && !never_ran && !s.group.stopping) ask_gpu(worker);
  if (s.settings.in_memory_recovery ? s.group.pause != Group::kNow : workers_run() && !s.group.stopping) {
    halt_workers("rank " + std::to_string(outcome.rank) + " ended with " +
                 describe_exit(outcome.exit_code, outcome.signal));
  }
}

void Step::report_failure(const WorkerOutcome& outcome) {
  s.group.failure_sent = !outcome.collateral;
  s.group.reported = outcome;
  emit(action::SendFailure{.generation = generation(), .outcome = outcome});
}

void Step::broken(const Worker& worker, const std::string& error) {
  if (!s.paused_since) s.paused_since = now_;
  if (s.group.broken_at) return;
  if (s.told_signal != 0) return halt_workers("a peer is gone");
  if (s.group.stopping) return;
  s.group.broken_at = now_ + kCauseWait;
  WorkerOutcome outcome;
  outcome.local_rank = static_cast<int>(&worker - s.workers.data());
  outcome.exit_code = kExitWorkerPeerLost;
  outcome.error = error;
  s.group.broken = complete(outcome, s, false);
}

void Step::cause_unknown() {
  s.group.broken_at.reset();
  if (s.group.stopping || !workers_run()) return;
  report_failure(s.group.broken);
  halt_workers("a collective broke: " + s.group.broken.error);
  settle();
}

void Step::start_next() {
  Assignment assignment = std::move(*s.next);
  s.next.reset();
  announce(assignment);
  s.group = Group{};
  s.group.assignment = assignment;
  s.link.seated = true;
  s.group.started_at = now_;
  s.group.closed = false;
  s.completion.reset();
  s.steps_redone.begin_generation(assignment.crash_history.best_step);
  choose_parts(assignment.node.nproc);
  std::vector<action::Spawn> spawn = spawn_missing();
  s.replaced = static_cast<int>(spawn.size());
  if (hold(spawn)) spawn.clear();
  emit(action::StartWorkers{.assignment = std::move(assignment), .spawn = std::move(spawn)});
  s.kept = 0;
  for (Worker& worker : s.workers) {
    if (!worker.part || worker.stage != Worker::kReady) continue;
    s.kept += worker.step.has_value();
    place(worker);
  }
  send_heartbeat();
}

std::vector<action::Spawn> Step::spawn_missing() {
  std::vector<action::Spawn> spawn;
  for (std::size_t local_rank = 0; local_rank < s.workers.size(); ++local_rank) {
    Worker& worker = s.workers[local_rank];
    if (worker.alive()) continue;
    worker = {.stage = s.settings.builtin ? Worker::kLoading : Worker::kAtWork,
              .serial = s.next_serial++,
              .part = worker.part,
              .rank = worker.rank,
              .step = {},
              .outcome = {},
              .gpu_trouble = {}};
    spawn.push_back(spawn_of(worker));
  }
  return spawn;
}

action::Spawn Step::spawn_of(const Worker& worker) const {
  const int local_rank = static_cast<int>(&worker - s.workers.data());
  return {.serial = worker.serial,
          .local_rank = local_rank,
          .rank = worker.part ? worker.rank : s.group.assignment.node.first_rank + local_rank};
}

// True if the processes have to wait until the GPUs are free of those that ended.
bool Step::hold(const std::vector<action::Spawn>& spawn) {
  if (!s.settings.has_gpu_driver || spawn.empty()) return false;
  for (const action::Spawn& one : spawn) worker_of(one.serial)->held = true;
  if (!std::exchange(s.awaits_gpus, true)) emit(action::AwaitGpus{});
  return true;
}

void Step::announce(const Assignment& to) {
  if (generation() == 0) return;
  if (s.succeeded()) {
    print(again_notice(s, to));
    s.told_news = to.reason;
  }
  if (to.restart_count <= s.group.assignment.restart_count) return print(regrouped_notice(s, to));
  if (s.told_restart != to.reason && !s.succeeded()) print(to.reason);
}

}  // namespace dtrun::agent
