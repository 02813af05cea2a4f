#include "agent/core/supervisor/generation.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/supervisor/notices.h"
#include "agent/core/supervisor/outcome.h"
#include "agent/text/report.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

// From the news of a hang to the end of the workers, the same on all nodes: until then each sees where its
// own stand. A worker that loses a peer no longer stands where it hung.
constexpr Millis kAllLook = 5000;
// A broken collective is rarely the cause. The cause (a peer's death, an order to stop) has this long to
// arrive.
constexpr Millis kCauseWait = 3000;
// If workers end this soon after the request to stop, people need no reason for the wait.
constexpr Millis kSwift = 3000;

}  // namespace

// ---- it begins

void Generation::on(const event::Assigned& e) {
  if (s.is_ending() || e.assignment.generation <= generation()) return;
  own_.next = e.assignment;
  connection_.assigned();
  if (s.awaited() > 0) halt("a new generation begins");
  settle_later();
}

void Generation::begin_next() {
  GenerationState begun;
  begun.assignment = std::move(*own_.next);
  begun.started_at = now_;
  begun.closed = false;
  begun.paused_since = own_.paused_since;
  begun.held = own_.held;
  const std::optional<std::int64_t> lost = own_.lost;
  connection_.begin(begun.assignment);
  own_ = std::move(begun);
  if (lost) print(begin_again_notice(s, *lost));
  own_.replaced = static_cast<int>(std::ranges::count(s.workers.all, false, &Worker::alive));
  std::vector<action::Spawn> spawn = workers_.choose(own_.assignment.node);
  if (workers_.hold(spawn)) spawn.clear();
  emit(action::StartWorkers{.assignment = own_.assignment, .spawn = std::move(spawn)});
  own_.kept = workers_.place_ready();
  connection_.send_heartbeat();
}

void Generation::on(const event::JoinAck& e) {
  if (s.is_ending()) return;
  if (e.resumed) return say_again();
  own_.broken_at.reset();  // the others have gone on
  if (s.awaited() > 0) halt("the connection to the coordinator was lost for too long");
  if (s.settings.in_memory_recovery) settle_later();
}

// Sends the coordinator again whatever it may have missed, or a new coordinator cannot know.
void Generation::say_again() {
  if (own_.reported) emit(action::SendFailure{.generation = generation(), .outcome = *own_.reported});
  if (own_.closed && generation() > 0) send_end();
  workers_.tell_ready();
  connection_.send_heartbeat();
}

void Generation::on(const event::Progressed& e) {
  if (s.progresses(e.generation)) {
    const bool first = !own_.progress || (own_.progress->step == 0 && e.progress.step > 0);
    own_.progress = e.progress;
    connection_.progressed(first);
  }
  if (e.generation != generation() || !e.progress.first_step) return;
  if (!s.settings.builtin) own_.held = std::max(own_.held, std::optional(e.progress.step));
  trained(e.progress);
}

void Generation::on(const event::WorkerCompleted& e) {
  own_.completion = e.completion;
  // The newest report may be some steps older.
  if (!own_.progress) own_.progress.emplace();
  own_.progress->first_step = e.completion.first_step;
  own_.progress->step = e.completion.step;
}

// ---- its workers fail

const Worker* Generation::on(const event::WorkerExited& e) {
  const Worker* worker = workers_.ended(e);
  if (worker == nullptr) return nullptr;
  workers_.end_broken_units();
  settle_later();
  if (!worker->part && !s.is_ending()) {
    if (workers_.replace(*worker)) return nullptr;
    if (own_.closed) return worker;
  }
  if (!worker->outcome.ok()) failed(*worker, e.never_ran);
  return nullptr;
}

void Generation::failed(const Worker& worker, bool never_ran) {
  const WorkerOutcome& outcome = worker.outcome;
  if (s.ending.told_signal != 0) {
    // The step cannot be finished without this worker.
    if (outcome.collateral) return;
    s.workers_outlive() ? pause("a worker of this node died") : abort("a worker of this node died");
    return;
  }
  if (own_.closed) return;  // it waited; the next generation gets another one
  const bool agreed_stop =
      s.settings.builtin && outcome.signal == 0 && outcome.exit_code == kExitWorkerStopped;
  if (agreed_stop && !own_.stopping) return begin_grace();
  if (!own_.failure_sent && (!outcome.collateral || !own_.stopping)) report_failure(outcome);
  if (!outcome.collateral && !never_ran && !own_.stopping) workers_.ask_gpu(worker);
  if (s.workers_outlive() ? own_.pause != GenerationState::kNow : workers_run() && !own_.stopping) {
    halt("rank " + std::to_string(outcome.rank) + " ended with " +
         describe_exit(outcome.exit_code, outcome.signal));
  }
}

void Generation::report_failure(const WorkerOutcome& outcome) {
  own_.failure_sent = !outcome.collateral;
  own_.reported = outcome;
  emit(action::SendFailure{.generation = generation(), .outcome = outcome});
}

// The failure was told before: nobody waits for the driver of a GPU but this node's last word on the
// generation.
void Generation::on(const event::GpuFound& e) {
  const Worker* worker = workers_.gpu_found(e);
  if (worker == nullptr) return;
  if (own_.reported && own_.reported->local_rank == worker->local_rank) own_.reported->gpu = e.trouble;
  settle_later();
}

void Generation::broken(const Worker& worker, const std::string& error) {
  if (!own_.paused_since) own_.paused_since = now_;
  if (own_.broken_at) return;
  if (s.ending.told_signal != 0) return halt("a peer is gone");
  if (own_.stopping) return;
  if (const WorkerOutcome* left = left_early()) return broken_by(*left);
  own_.broken_at = now_ + kCauseWait;
  WorkerOutcome outcome;
  outcome.local_rank = worker.local_rank;
  outcome.exit_code = kExitWorkerPeerLost;
  outcome.error = error;
  own_.broken = complete(std::move(outcome), s, false);
  own_.broken.collateral = true;
}

// A worker that ended with 0 before its peers were done, and without a word on it.
const WorkerOutcome* Generation::left_early() const {
  const auto left = [](const Worker& one) {
    return one.part && one.stage == Worker::kEnded && one.outcome.ok();
  };
  const auto found = std::ranges::find_if(s.workers.all, left);
  return found != s.workers.all.end() ? &found->outcome : nullptr;
}

void Generation::broken_by(WorkerOutcome left) {
  left.exit_code = 1;
  left.retryable = false;
  left.error = "ended with 0 while its peers were in a step with it: a loop ends on all ranks together";
  report_failure(left);
  halt("rank " + std::to_string(left.rank) + " " + left.error);
}

void Generation::cause_unknown() {
  own_.broken_at.reset();
  if (own_.stopping || !workers_run()) return;
  report_failure(own_.broken);
  halt("a collective broke: " + own_.broken.error);
  settle_later();
}

// ---- its workers hang

void Generation::on(const event::HangFound& e) {
  if (e.generation != generation() || own_.stopping || !workers_run()) return;
  own_.hang_found = true;
  if (!own_.failure_sent) report_failure(complete(e.hung.front(), s, false));
  for (const WorkerOutcome& hung : e.hung)
    workers_.ask_gpu(s.workers.all[static_cast<std::size_t>(hung.local_rank)]);
  if (own_.assignment.node_count == 1 || s.workers_outlive()) return end_hang();
  if (!own_.look_until) own_.look_until = now_ + kAllLook;
}

// The order also comes to the node that found the hang and has looked at its workers.
void Generation::look(const std::string& reason) {
  if (own_.look_until || own_.hang_found) return;
  own_.why_look = reason;
  own_.look_until = now_ + kAllLook;
  emit(action::LookAtWorkers{kAllLook});
}

void Generation::end_hang() {
  own_.look_until.reset();
  if (own_.stopping || !workers_run()) return;
  if (own_.hang_found) return emit(action::KillHung{});
  halt(own_.why_look);
  settle_later();
}

// ---- its workers are stopped

void Generation::on(const event::StopOrder& e) {
  if (e.generation != generation()) return;
  if (e.look && workers_run() && !own_.stopping) return look(e.reason);
  if (workers_run()) halt(e.reason, e.after_step);
  settle_later();
}

// The generation is over for this node: nothing of it may go on.
void Generation::halt(const std::string& reason, bool after_step) {
  const bool pauses = s.workers_outlive() && (!s.is_ending() || s.ending.told_signal != 0);
  pauses ? pause(reason, after_step) : stop(reason);
}

// Nobody may compute a job of its own: the others go on without this node, or wait for it.
void Generation::part() {
  own_.parted = true;
  if (s.connection.told) emit(action::Print{.text = parted_notice(s), .of_node = true});
  halt("the coordinator is out of reach");
  own_.why_stopping.clear();
  settle_later();
}

void Generation::stop(const std::string& reason) {
  if (!s.workers_outlive()) abort(reason);
  if (!own_.stopping) {
    workers_.signal(SIGTERM);
    tell_if_slow(reason);
  }
  begin_grace();
}

// The peers on other nodes are out of reach, or go on without this one: a step with them would not end.
void Generation::stop_silently(const std::string& reason) {
  s.workers_outlive() ? pause(reason) : stop(reason);
  own_.why_stopping.clear();
}

// dtrun-worker takes SIGTERM as "finish the step, checkpoint, end"; other programs get the signal we got. If
// other nodes go on, the workers' peers are to pause after the same step, and not to end.
void Generation::stop_after_signal(int number) {
  tell_why_stopping();
  print(signal_notice(s, now_));
  if (hands_over())
    pause(describe_signal(number), true);
  else
    workers_.signal(s.settings.builtin ? SIGTERM : number);
  begin_grace();
}

void Generation::abort(const std::string& reason) {
  if (!s.settings.builtin || std::exchange(own_.aborted, true)) return;
  emit(action::AbortWorkers{reason});
}

void Generation::begin_grace() {
  own_.stopping = true;
  own_.broken_at.reset();
  if (!own_.kill_at) own_.kill_at = now_ + s.settings.shutdown_timeout;
}

void Generation::tell_if_slow(const std::string& reason) {
  own_.why_stopping = reason;
  own_.notice_at = now_ + kSwift;
}

// Tells a user that waits for slow workers, or loses patience with them, why they are being stopped.
void Generation::tell_why_stopping() {
  own_.notice_at.reset();
  if (s.awaited() == 0 || own_.why_stopping.empty()) return;
  print(stopping_notice(s, now_));
  own_.why_stopping.clear();
}

void Generation::grace_is_over() {
  own_.kill_at.reset();
  const int awaited = s.awaited(), running = s.workers.running();
  if (awaited == 0) return;
  const bool leave = awaited < running || own_.pause != GenerationState::kNone;
  print("killing " + counted(awaited, "worker") + " that did not " +
        (leave ? "leave the generation" : "end by itself"));
  if (awaited == running) return workers_.signal(SIGKILL);
  for (const Worker& worker : s.workers.all)
    if (worker.stage == Worker::kAtWork) workers_.signal(SIGKILL, worker.serial);
}

void Generation::kill() {
  own_.kill_at.reset();
  if (workers_run()) workers_.signal(SIGKILL);
}

void Generation::on(const event::Tick&) {
  if (due(own_.notice_at)) tell_why_stopping();
  if (due(own_.pause_at)) pause(own_.why_stopping);
  if (due(own_.kill_at)) grace_is_over();
  if (due(own_.broken_at)) cause_unknown();
  if (due(own_.look_until)) end_hang();
  if (due(s.parts_at())) part();
}

// ---- it is over

void Generation::rest() {
  own_.pause_at.reset();
  own_.kill_at.reset();
  own_.broken_at.reset();
  own_.look_until.reset();
  own_.notice_at.reset();
}

void Generation::close() {
  if (std::exchange(own_.closed, true)) return;
  send_end();
  if (!s.connection.seated)
    workers_.tell_ready();  // without a seat of this node no other node waits for its end
}

void Generation::send_end() {
  // How far the workers are: goodput, and whether the run gets anywhere, depend on it.
  if (own_.progress || s.settings.in_memory_recovery) connection_.send_heartbeat();
  if (s.all_finished()) return emit(action::SendFinished{generation()});
  action::SendStopped stopped{.generation = generation(), .outcomes = {}, .parted = own_.parted};
  for (const Worker& worker : s.workers.all)
    if (worker.stage == Worker::kEnded) stopped.outcomes.push_back(worker.outcome);
  if (s.settings.in_memory_recovery) stopped.workers = s.workers.waiting();
  emit(std::move(stopped));
}

}  // namespace dtrun::agent
