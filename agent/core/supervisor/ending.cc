#include "agent/core/supervisor/ending.h"

#include <utility>

#include "agent/core/supervisor/notices.h"
#include "agent/text/report.h"
#include "agent/text/run_summary.h"
#include "proto/core/exit_codes.h"
#include "proto/core/lost_exits.h"

namespace dtrun::agent {
namespace {

// If workers take longer than this to end after a signal, other nodes are told why they wait.
constexpr Millis kUnnoticed = 1000;
constexpr Millis kMembersNotice = 2000;
constexpr Millis kMembersDeadline = 15000;
// The time for the last message of a host that leaves: the others need no more of it.
constexpr Millis kLastWord = 1000;

}  // namespace

// ---- reasons

void Ending::on(const event::Signal& e) {
  if (own_.ended) return;
  if (own_.job_end && !workers_run()) return end(own_.job_end->exit_code);
  if (own_.told_signal != 0) return again_told(e.number);
  own_.told_signal = e.number;
  own_.told_at = now_;
  if (workers_run()) {
    generation_.stop_after_signal(e.number);
    if (s.generation.assignment.node_count > 1) own_.announce_at = now_ + kUnnoticed;
  }
  settle_later();
}

void Ending::again_told(int number) {
  if (own_.told_just_now(now_)) return;
  if (s.settings.may_be_started_again && is_schedulers(number)) return;
  emit(action::DropOutput{});
  if (own_.leaving) return end(*own_.leaving);
  generation_.kill();
}

void Ending::announce_leave() {
  own_.announce_at.reset();
  if (workers_run())
    emit(action::SendLeave{.generation = generation(), .signal = own_.told_signal, .soon = true});
}

void Ending::on(const event::Ended& e) {
  if (own_.ended || own_.job_end || own_.leaving) return;
  own_.job_end = e.job;
  if (e.job.first_failure || e.job.hang) own_.job_end->exit_code = pass_on(e.job.exit_code);
  if (workers_run()) generation_.stop(e.job.reason);
  settle_later();
}

// A worker's exit code as this node's own. If another node replaces a lost one, some codes would be taken for
// a loss: a job whose restarts are used up would be started again and again.
int Ending::pass_on(int exit_code) {
  const int code = s.settings.is_replaced ? exit_code_where_replaced(exit_code) : exit_code;
  if (code != exit_code)
    print("exit code " + std::to_string(code) + " in place of the worker's " + std::to_string(exit_code) +
          ", which would be taken for a lost node, and started again");
  return code;
}

void Ending::on(const event::Rejected& e) {
  if (s.is_ending()) return;
  const bool did_its_part = s.generation.closed && generation() > 0 && s.workers.all_ok();
  if (e.job_over && did_its_part) {
    give_up(kExitOk, "the job ended while this node was disconnected; its own workers all ended with 0");
  } else {
    give_up(e.exit_code, e.message);
  }
}

void Ending::on(const event::Disconnected& e) {
  if (e.permanent && !s.is_ending() && !s.job_succeeded()) give_up(e.exit_code, e.why);
}

void Ending::on_lost(const Worker& worker) {
  const WorkerOutcome& outcome = worker.outcome;
  const int code = pass_on(outcome.signal != 0 ? exit_code_of_signal(outcome.signal) : outcome.exit_code);
  const std::string how = ended_early_text(outcome);
  give_up(code, outcome.error.empty() ? how : how + ": " + outcome.error);
}

void Ending::check_connection() {
  if (s.connection.connected || s.is_ending() || now_ < s.connection_deadline()) return;
  if (!s.connection.ever_connected) {
    give_up(kExitUnavailable, never_met_notice(s));
  } else if (s.job_succeeded()) {
    const Assignment& last = s.generation.assignment;
    tell_success({.restart_count = last.restart_count,
                  .membership_changes = last.membership_changes,
                  .goodput = last.goodput});
    give_up(kExitOk, s.connection.why_lost + ", but all workers of the job ended with 0");
  } else {
    give_up(kExitUnavailable, gone_notice(s, now_), /*of_node=*/true);
  }
}

void Ending::give_up(int exit_code, const std::string& message, bool of_node) {
  own_.give_up = exit_code;
  own_.give_up_reason = message;
  emit(action::Print{.text = message, .error = exit_code != kExitOk, .of_node = of_node});
  if (workers_run()) generation_.stop_silently(message);
  settle_later();
}

// ---- the next step

void Ending::settle() {
  if (own_.ended) return;
  if (s.is_ending() && workers_run()) return generation_.end_paused();
  if (s.awaited() > 0 || (s.generation.broken_at && workers_run())) return;
  generation_.rest();
  if (own_.told_signal != 0) return leave(own_.told_signal, s.exit_code_when_told());
  if (own_.give_up) return leave(0, *own_.give_up);
  if (own_.job_end) return conclude();
  if (generation_.load_again()) return;
  if (s.workers.asks_gpus()) return;  // this node's last word on the generation has the answer
  generation_.close();
  if (s.generation.next) return generation_.begin_next();
  // Waiting came while the old workers were being stopped, and was not shown then.
  const ConnectionState& connection = s.connection;
  if (connection.waiting && connection.waiting->max_nodes > 1 && !connection.notice_at)
    connection_.show_wait();
}

void Ending::leave(int signal, int exit_code) {
  if (own_.leaving) return;
  emit(action::SendLeave{.generation = generation(), .signal = signal, .replaced = s.gives_way()});
  const GenerationState& last = s.generation;
  const bool failed = last.reported && !last.reported->collateral;
  if (signal != 0 && failed && last.assignment.node_count == 1) report_before(signal, exit_code);
  const bool hosting = s.connection.hosting && s.connection.connected;
  if (!hosting || s.settings.has_successor) return end(exit_code);
  own_.leaving = exit_code;  // the coordinator goes with this agent, and tells the others first
  own_.members_deadline = now_ + kLastWord;
  emit(action::AwaitMembers{.is_member = !s.connection.address.empty()});
}

// Reports a failure on the only node if a signal ended the job before the coordinator could report it.
void Ending::report_before(int signal, int exit_code) {
  JobEnd job;
  job.exit_code = exit_code;
  job.reason = "stopped by " + describe_signal(signal);
  job.first_failure = s.generation.reported;
  for (const Worker& worker : s.workers.all) {
    if (!worker.outcome.ok() && worker.outcome.local_rank != job.first_failure->local_rank)
      job.followers.push_back(worker.outcome);
  }
  job.restart_count = s.generation.assignment.restart_count;
  report(std::move(job));
}

void Ending::conclude() {
  if (own_.members_deadline) return;
  if (own_.job_end->exit_code != 0) {
    report(*own_.job_end);
  } else {
    tell_success(*own_.job_end);
  }
  if (!s.connection.hosting) return end(own_.job_end->exit_code);
  own_.members_notice_at = now_ + kMembersNotice;
  own_.members_deadline = now_ + kMembersDeadline;
  emit(action::AwaitMembers{.is_member = true});
}

// Only one node prints it: the one whose worker completed the training; for another program, the first one.
void Ending::tell_success(const JobEnd& run) {
  const bool read_elsewhere = s.settings.begin_together || s.generation.assignment.node_count > 1;
  const RunSummary summary{.seconds = static_cast<double>(now_ - s.started_at) / 1000,
                           .restarts = run.restart_count,
                           .membership_changes = run.membership_changes,
                           .goodput = run.goodput,
                           .straggler = run.verdict ? run.verdict->text : "",
                           .host = read_elsewhere ? s.settings.host : ""};
  if (s.generation.completion) return print(summary_text(*s.generation.completion, summary));
  if (s.settings.builtin || s.generation.assignment.group_rank != 0) return;
  const std::string text = program_summary_text(summary);
  if (!text.empty()) print(text);
}

void Ending::on(const event::MembersLeft&) {
  if (own_.members_deadline && !own_.ended) end(own_.leaving ? *own_.leaving : own_.job_end->exit_code);
}

void Ending::check_members() {
  if (own_.ended) return;
  if (due(own_.members_notice_at)) {
    own_.members_notice_at.reset();
    print("this node hosts the coordinator: waiting for the other nodes to leave");
  }
  if (due(own_.members_deadline)) end(own_.leaving ? *own_.leaving : own_.job_end->exit_code);
}

void Ending::on(const event::Tick&) {
  if (due(own_.announce_at)) announce_leave();
  check_connection();
  check_members();
}

void Ending::report(JobEnd job) {
  own_.reported = true;
  emit(action::Report{std::move(job)});
}

void Ending::end(int exit_code) {
  own_.ended = true;
  JobEnd here;  // why this node ends
  here.exit_code = exit_code;
  here.restart_count = s.generation.assignment.restart_count;
  here.reason =
      own_.told_signal != 0 ? "stopped by " + describe_signal(own_.told_signal) : own_.give_up_reason;
  action::End end{.exit_code = exit_code, .unreported = {}, .run = own_.job_end};
  if (exit_code != 0 && !own_.reported) end.unreported = here;
  // Without a successor no run outlives its coordinator's host.
  if (!end.run && s.connection.hosting && !s.settings.has_successor && !s.gives_way()) end.run = here;
  emit(std::move(end));
}

}  // namespace dtrun::agent
