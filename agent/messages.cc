#include "agent/messages.h"

#include <algorithm>

#include "proto/exit_codes.h"

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

// An assignment that contradicts itself would index past the nodes: it is not taken.
std::optional<Event> assigned(std::int64_t generation, const wire::Assignment& in) {
  Assignment out;
  out.generation = generation;
  out.group_rank = in.group_rank();
  out.world_size = in.world_size();
  for (const wire::Node& node : in.nodes()) {
    out.nodes.push_back({node.host(), node.address(), node.nproc(), node.first_rank()});
  }
  out.restart_count = in.restart_count();
  out.master_address = in.master_address();
  out.master_port = in.master_port();
  out.reason = in.reason();
  if (out.group_rank < 0 || out.group_rank >= in.nodes_size() || out.here().nproc < 1) return std::nullopt;
  return event::Assigned{std::move(out)};
}

Event ended(const wire::JobEnd& in) {
  JobEnd out;
  out.exit_code = in.exit_code();
  out.reason = in.reason();
  if (in.has_first_failure()) out.first_failure = from_wire(in.first_failure());
  for (const auto& follower : in.followers()) out.followers.push_back(from_wire(follower));
  out.restart_count = in.restart_count();
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
      return event::Welcome{message.welcome().address(), message.welcome().heartbeat_interval_ms()};
    case Body::kRejected:
      return rejected(message.rejected(), spec);
    case Body::kWaiting: {
      const wire::Waiting& waiting = message.waiting();
      return event::Waiting{waiting.joined(), waiting.min_nodes(), waiting.max_nodes(), waiting.spare()};
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

wire::FromAgent to_message(const action::SendHeartbeat& send) {
  wire::FromAgent message = message_of(send.generation);
  message.mutable_heartbeat();
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
  wire::FromAgent message = message_of(send.generation);
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
  join->set_heartbeat_timeout_ms(spec.rendezvous.heartbeat_timeout.count());
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program)) join->set_job(trainer->config_json);
  join->set_master_port(identity.master_port);
  join->set_group_rank(send.group_rank);
  return message;
}

}  // namespace dtrun::agent
