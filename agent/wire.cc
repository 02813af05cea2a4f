#include "agent/wire.h"

#include <algorithm>

#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

wire::WorkerOutcome to_wire(const WorkerOutcome& outcome) {
  wire::WorkerOutcome out;
  out.set_rank(outcome.rank);
  out.set_local_rank(outcome.local_rank);
  out.set_pid(outcome.pid);
  out.set_host(outcome.host);
  out.set_group_rank(outcome.group_rank);
  out.set_exit_code(outcome.exit_code);
  out.set_signal(outcome.signal);
  out.set_collateral(outcome.collateral);
  out.set_retryable(outcome.retryable);
  for (const std::string& line : outcome.stderr_tail) out.add_stderr_tail(line);
  out.set_error(outcome.error);
  out.set_uptime_s(outcome.uptime_s);
  out.set_traceback(outcome.traceback);
  out.set_ended_at(outcome.ended_at);
  out.set_cause(static_cast<wire::EndCause>(outcome.cause));
  return out;
}

WorkerOutcome from_wire(const wire::WorkerOutcome& in) {
  WorkerOutcome outcome;
  outcome.rank = in.rank();
  outcome.local_rank = in.local_rank();
  outcome.pid = in.pid();
  outcome.host = in.host();
  outcome.group_rank = in.group_rank();
  outcome.exit_code = in.exit_code();
  outcome.signal = in.signal();
  outcome.collateral = in.collateral();
  outcome.retryable = in.retryable();
  outcome.stderr_tail.assign(in.stderr_tail().begin(), in.stderr_tail().end());
  outcome.error = in.error();
  outcome.uptime_s = in.uptime_s();
  outcome.traceback = in.traceback();
  outcome.ended_at = in.ended_at();
  outcome.cause = static_cast<EndCause>(in.cause());
  return outcome;
}

CrashHistory from_wire(const wire::CrashHistory& in) {
  return {in.quick_restarts(), in.best_step(), in.alike(), in.rank(), in.exit_code(), in.signal()};
}

void to_wire(const CrashHistory& history, wire::CrashHistory* out) {
  out->set_quick_restarts(history.quick_restarts);
  out->set_best_step(history.best_step);
  out->set_alike(history.alike);
  out->set_rank(history.rank);
  out->set_exit_code(history.exit_code);
  out->set_signal(history.signal);
}

// An assignment that contradicts itself is not taken.
std::optional<Event> assigned(std::int64_t generation, const wire::Assignment& in) {
  Assignment out;
  out.generation = generation;
  out.group_rank = in.group_rank();
  out.world_size = in.world_size();
  out.node_count = in.node_count();
  out.node = {in.node().host(), in.node().address(), in.node().nproc(), in.node().first_rank()};
  out.restart_count = in.restart_count();
  out.membership_changes = in.membership_changes();
  out.crash_history = from_wire(in.crash_history());
  out.master_address = in.master_address();
  out.master_port = in.master_port();
  out.reason = in.reason();
  if (out.group_rank < 0 || out.group_rank >= out.node_count || out.here().nproc < 1) return std::nullopt;
  return event::Assigned{std::move(out)};
}

Event ended(const wire::JobEnd& in) {
  JobEnd out;
  out.exit_code = in.exit_code();
  out.reason = in.reason();
  if (in.has_first_failure()) out.first_failure = from_wire(in.first_failure());
  for (const auto& follower : in.followers()) out.followers.push_back(from_wire(follower));
  out.more_followers = in.more_followers();
  out.restart_count = in.restart_count();
  out.membership_changes = in.membership_changes();
  return event::Ended{std::move(out)};
}

Event rejected(const wire::Rejected& in, const JobSpec& spec) {
  event::Rejected out;
  out.message = in.message();
  out.exit_code = kExitUnavailable;
  out.job_over = in.reason() == wire::Rejected::JOB_OVER;
  if (in.reason() == wire::Rejected::OTHER_SETTINGS) out.exit_code = kExitUsage;
  if (in.reason() == wire::Rejected::OTHER_JOB) {
    out.exit_code = kExitConfig;
    const std::string difference = spec.describe_difference ? spec.describe_difference(in.job()) : "";
    if (!difference.empty()) out.message += "\n  " + difference;
  }
  return out;
}

wire::FromAgent message_of(std::int64_t generation) {
  wire::FromAgent message;
  message.set_generation(generation);
  return message;
}

}  // namespace

std::optional<Event> to_event(const wire::FromCoordinator& message, const JobSpec& spec) {
  using Body = wire::FromCoordinator;
  switch (message.body_case()) {
    case Body::kWelcome:
      return event::Welcome{message.welcome().address(), message.welcome().heartbeat_interval_ms(),
                            message.welcome().resumed(), message.welcome().separate()};
    case Body::kRejected:
      return rejected(message.rejected(), spec);
    case Body::kWaiting: {
      const wire::Waiting& waiting = message.waiting();
      return event::Waiting{waiting.joined(), waiting.min_nodes(),     waiting.max_nodes(),
                            waiting.spare(),  waiting.restart_in_ms(), waiting.reason()};
    }
    case Body::kAssignment:
      return assigned(message.generation(), message.assignment());
    case Body::kStop:
      return event::StopOrder{message.generation(), message.stop().reason()};
    case Body::kJobEnd:
      return ended(message.job_end());
    case Body::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

wire::FromAgent to_message(const action::SendHeartbeat& send, const std::vector<pid_t>& pids,
                           const std::optional<control::Progress>& progress) {
  wire::FromAgent message = message_of(send.generation);
  wire::Heartbeat* heartbeat = message.mutable_heartbeat();
  for (pid_t pid : pids) heartbeat->add_pids(pid);
  if (progress) {
    wire::TrainingProgress* out = heartbeat->mutable_progress();
    out->set_step(progress->step());
    out->set_total_steps(progress->total_steps());
    out->set_epoch(progress->epoch());
    out->set_loss(progress->loss());
    out->set_samples_per_second(progress->samples_per_second());
  }
  return message;
}

wire::FromAgent to_message(const action::SendFailure& send) {
  wire::FromAgent message = message_of(send.generation);
  *message.mutable_failure()->mutable_outcome() = to_wire(send.outcome);
  return message;
}

wire::FromAgent to_message(const action::SendStopped& send) {
  wire::FromAgent message = message_of(send.generation);
  wire::Stopped* stopped = message.mutable_stopped();
  for (const WorkerOutcome& outcome : send.outcomes) *stopped->add_outcomes() = to_wire(outcome);
  return message;
}

wire::FromAgent to_message(const action::SendFinished& send) {
  wire::FromAgent message = message_of(send.generation);
  message.mutable_finished();
  return message;
}

wire::FromAgent to_message(const action::SendLeave& send) {
  wire::FromAgent message = message_of(send.generation);
  message.mutable_leave()->set_signal(send.signal);
  return message;
}

wire::FromAgent to_message(const action::SendJoin& send, const JobSpec& spec, const Identity& identity) {
  const Assignment& running = send.running;
  wire::FromAgent message = message_of(running.generation);
  wire::Join* join = message.mutable_join();
  join->set_run_id(spec.run_id);
  join->set_member_id(identity.member_id);
  join->set_host(identity.host);
  join->set_address(identity.address);
  join->set_nproc(spec.nproc);
  join->set_node_rank(spec.node_rank.value_or(-1));
  join->set_min_nodes(spec.nodes.min);
  join->set_max_nodes(spec.nodes.max);
  join->set_max_restarts(spec.max_restarts);
  join->set_last_call_ms(spec.rendezvous.last_call.count());
  join->set_join_timeout_ms(spec.rendezvous.join_timeout.count());
  join->set_heartbeat_timeout_ms(spec.rendezvous.keep_alive_timeout.count());
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program)) join->set_job(trainer->config_json);
  join->set_master_port(identity.master_port);
  join->set_group_rank(-1);
  if (running.generation > 0) {
    join->set_group_rank(running.group_rank);
    join->set_node_count(running.node_count);
    join->set_first_rank(running.here().first_rank);
    join->set_world_size(running.world_size);
    join->set_restart_count(running.restart_count);
    join->set_membership_changes(running.membership_changes);
    to_wire(running.crash_history, join->mutable_crash_history());
    join->set_age_ms(send.age);
  }
  return message;
}

}  // namespace dtrun::agent
