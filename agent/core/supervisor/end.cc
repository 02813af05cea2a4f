// The node's next step once none of its workers runs: the next generation, leaving, or the job's end.
#include <algorithm>
#include <utility>

#include "agent/core/supervisor/step.h"
#include "agent/text/report.h"
#include "proto/core/exit_codes.h"
#include "proto/core/lost_exits.h"

namespace dtrun::agent {
namespace {

constexpr Millis kMembersNotice = 2000;
constexpr Millis kMembersDeadline = 15000;
// The time for the last message of a host that leaves: the others need no more of it.
constexpr Millis kLastWord = 1000;

}  // namespace

void Step::on(const event::Ended& e) {
  if (s.ended || s.job_end || s.leaving) return;
  s.job_end = e.job;
  if (e.job.first_failure || e.job.hang) s.job_end->exit_code = pass_on(e.job.exit_code);
  if (workers_run()) stop_workers(e.job.reason);
  settle();
}

// A worker's exit code as this node's own. If another node replaces a lost one, some codes would be taken for
// a loss: a job whose restarts are used up would be started again and again.
int Step::pass_on(int exit_code) {
  const int code = s.settings.is_replaced ? exit_code_where_replaced(exit_code) : exit_code;
  if (code != exit_code)
    print("exit code " + std::to_string(code) + " in place of the worker's " + std::to_string(exit_code) +
          ", which would be taken for a lost node, and started again");
  return code;
}

void Step::on(const event::Rejected& e) {
  if (s.ending()) return;
  const bool did_its_part = s.group.closed && generation() > 0 && s.all_ok();
  if (e.job_over && did_its_part) {
    give_up(kExitOk, "the job ended while this node was disconnected; its own workers all ended with 0");
  } else {
    give_up(e.exit_code, e.message);
  }
}

void Step::on(const event::MembersLeft&) {
  if (s.members_deadline && !s.ended) end(s.leaving ? *s.leaving : s.job_end->exit_code);
}

void Step::give_up(int exit_code, const std::string& message) {
  s.give_up = exit_code;
  s.give_up_reason = message;
  emit(action::Print{.text = message, .error = exit_code != kExitOk});
  if (workers_run()) {
    stop_workers(message);
    s.group.why_stopping.clear();  // the Print above says it
  }
  settle();
}

// Goes on once no worker runs here.
void Step::settle() {
  if (s.ended) return;
  if (s.ending() && workers_run()) return end_paused();
  if (s.awaited() > 0 || (s.group.broken_at && workers_run())) return;
  s.group.pause_at.reset();
  s.group.kill_at.reset();
  s.group.broken_at.reset();
  s.group.look_until.reset();
  s.group.notice_at.reset();
  if (s.told_signal != 0) return leave(s.told_signal, s.exit_code_when_told());
  if (s.give_up) return leave(0, *s.give_up);
  if (s.job_end) return conclude();
  if (s.asks_gpus()) return;  // this node's last word on the generation has the answer
  close_generation();
  if (s.next) return start_next();
  // Waiting came while the old workers were being stopped, and was not shown then.
  if (s.waiting && s.waiting->max_nodes > 1 && !s.notice_at) show_wait_status();
}

void Step::leave(int signal, int exit_code) {
  if (s.leaving) return;
  emit(action::SendLeave{.generation = generation(), .signal = signal, .replaced = s.gives_way()});
  const bool failed = s.group.reported && !s.group.reported->collateral;
  if (signal != 0 && failed && s.group.assignment.node_count == 1) report_before(signal, exit_code);
  if (!s.link.hosting || !s.link.connected || s.settings.has_successor) return end(exit_code);
  s.leaving = exit_code;  // the coordinator goes with this agent, and tells the others first
  s.members_deadline = now_ + kLastWord;
  emit(action::AwaitMembers{.is_member = !s.link.address.empty()});
}

// Reports a failure on the only node if a signal ended the job before the coordinator could report it.
void Step::report_before(int signal, int exit_code) {
  JobEnd job;
  job.exit_code = exit_code;
  job.reason = "stopped by " + describe_signal(signal);
  job.first_failure = s.group.reported;
  for (const Worker& worker : s.workers) {
    if (!worker.outcome.ok() && worker.outcome.local_rank != job.first_failure->local_rank)
      job.followers.push_back(worker.outcome);
  }
  job.restart_count = s.group.assignment.restart_count;
  report(std::move(job));
}

void Step::close_generation() {
  if (s.group.closed) return;
  s.group.closed = true;
  send_end();
  if (!s.link.seated) tell_ready();  // without a seat of this node no other node waits for its end
}

void Step::send_end() {
  if (s.all_finished()) return emit(action::SendFinished{generation()});
  action::SendStopped stopped{.generation = generation(), .outcomes = {}};
  for (const Worker& worker : s.workers)
    if (worker.stage == Worker::kEnded) stopped.outcomes.push_back(worker.outcome);
  if (s.settings.in_memory_recovery) {
    stopped.workers = static_cast<int>(std::ranges::count(s.workers, Worker::kReady, &Worker::stage));
    send_heartbeat();  // how far they are: whether the run gets anywhere depends on it
  }
  emit(std::move(stopped));
}

void Step::conclude() {
  if (s.members_deadline) return;
  if (s.job_end->exit_code != 0) {
    report(*s.job_end);
  } else {
    tell_success(s.job_end->restart_count, s.job_end->membership_changes);
  }
  if (!s.link.hosting) return end(s.job_end->exit_code);
  s.members_notice_at = now_ + kMembersNotice;
  s.members_deadline = now_ + kMembersDeadline;
  emit(action::AwaitMembers{.is_member = true});
}

// Only one node prints it: the one whose worker completed the training; for another program, the first one.
void Step::tell_success(int restarts, int membership_changes) {
  const bool read_elsewhere = s.settings.begin_together || s.group.assignment.node_count > 1;
  const RunSummary summary{.seconds = static_cast<double>(now_ - s.started_at) / 1000,
                           .restarts = restarts,
                           .membership_changes = membership_changes,
                           .steps_redone = s.steps_redone.count(),
                           .host = read_elsewhere ? s.settings.host : ""};
  if (s.completion) return print(summary_text(*s.completion, summary));
  if (s.settings.builtin || s.group.assignment.group_rank != 0) return;
  const std::string text = program_summary_text(summary);
  if (!text.empty()) print(text);
}

void Step::check_members() {
  if (s.ended) return;
  if (due(s.members_notice_at)) {
    s.members_notice_at.reset();
    print("this node hosts the coordinator: waiting for the other nodes to leave");
  }
  if (due(s.members_deadline)) end(s.leaving ? *s.leaving : s.job_end->exit_code);
}

void Step::report(JobEnd job) {
  s.reported = true;
  emit(action::Report{std::move(job)});
}

void Step::end(int exit_code) {
  s.ended = true;
  JobEnd here;  // why this node ends
  here.exit_code = exit_code;
  here.restart_count = s.group.assignment.restart_count;
  here.reason = s.told_signal != 0 ? "stopped by " + describe_signal(s.told_signal) : s.give_up_reason;
  action::End end{.exit_code = exit_code, .unreported = {}, .run = s.job_end};
  if (exit_code != 0 && !s.reported) end.unreported = here;
  // Without a successor no run outlives its coordinator's host.
  if (!end.run && s.link.hosting && !s.settings.has_successor && !s.gives_way()) end.run = here;
  emit(std::move(end));
}

}  // namespace dtrun::agent
