#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

Outcome from_wire(const v1::WorkerOutcome& wire) {
  Outcome outcome;
  outcome.rank = wire.rank();
  outcome.local_rank = wire.local_rank();
  outcome.pid = wire.pid();
  outcome.host = wire.host();
  outcome.group_rank = wire.group_rank();
  outcome.exit_code = wire.exit_code();
  outcome.signal = wire.signal();
  outcome.collateral = wire.collateral();
  outcome.retryable = wire.retryable();
  outcome.stderr_tail = {wire.stderr_tail().begin(), wire.stderr_tail().end()};
  outcome.error = wire.error();
  outcome.uptime_s = wire.uptime_s();
  outcome.traceback = wire.traceback();
  outcome.ended_at = wire.ended_at();
  outcome.cause = static_cast<EndCause>(wire.cause());
  return outcome;
}

void to_wire(const Outcome& outcome, v1::WorkerOutcome* wire) {
  wire->set_rank(outcome.rank);
  wire->set_local_rank(outcome.local_rank);
  wire->set_pid(outcome.pid);
  wire->set_host(outcome.host);
  wire->set_group_rank(outcome.group_rank);
  wire->set_exit_code(outcome.exit_code);
  wire->set_signal(outcome.signal);
  wire->set_collateral(outcome.collateral);
  wire->set_retryable(outcome.retryable);
  for (const std::string& line : outcome.stderr_tail) wire->add_stderr_tail(line);
  wire->set_error(outcome.error);
  wire->set_uptime_s(outcome.uptime_s);
  wire->set_traceback(outcome.traceback);
  wire->set_ended_at(outcome.ended_at);
  wire->set_cause(static_cast<v1::EndCause>(outcome.cause));
}

CrashHistory from_wire(const v1::CrashHistory& wire) {
  return {wire.quick_restarts(), wire.best_step(), wire.alike(),
          wire.rank(),           wire.exit_code(), wire.signal()};
}

void to_wire(const CrashHistory& history, v1::CrashHistory* wire) {
  wire->set_quick_restarts(history.quick_restarts);
  wire->set_best_step(history.best_step);
  wire->set_alike(history.alike);
  wire->set_rank(history.rank);
  wire->set_exit_code(history.exit_code);
  wire->set_signal(history.signal);
}

Join from_wire(const v1::Join& wire, const std::string& peer_address) {
  Join join;
  join.run_id = wire.run_id();
  join.member_id = wire.member_id();
  join.host = wire.host();
  join.address = wire.address().empty() ? peer_address : wire.address();
  join.nproc = wire.nproc();
  join.node_rank = wire.node_rank();
  join.min_nodes = wire.min_nodes();
  join.max_nodes = wire.max_nodes();
  join.max_restarts = wire.max_restarts();
  join.last_call = wire.last_call_ms();
  join.join_timeout = wire.join_timeout_ms();
  join.heartbeat_timeout = wire.heartbeat_timeout_ms();
  join.job = wire.job();
  join.master_port = wire.master_port();
  join.group_rank = wire.group_rank();
  join.node_count = wire.node_count();
  join.first_rank = wire.first_rank();
  join.world_size = wire.world_size();
  join.restart_count = wire.restart_count();
  join.membership_changes = wire.membership_changes();
  join.crash_history = from_wire(wire.crash_history());
  join.age = wire.age_ms();
  return join;
}

Heartbeat from_wire(const v1::Heartbeat& wire) {
  Heartbeat heartbeat;
  heartbeat.pids = {wire.pids().begin(), wire.pids().end()};
  const v1::TrainingProgress& progress = wire.progress();
  heartbeat.progress = {progress.step(), progress.total_steps(), progress.epoch(), progress.loss(),
                        progress.samples_per_second()};
  return heartbeat;
}

Stopped from_wire(const v1::Stopped& wire) {
  Stopped stopped;
  for (const v1::WorkerOutcome& outcome : wire.outcomes()) stopped.outcomes.push_back(from_wire(outcome));
  return stopped;
}

// Writes each action's body into the message of its type.
struct BodyWriter {
  v1::FromCoordinator* message;

  void operator()(const Welcome& welcome) const {
    message->mutable_welcome()->set_address(welcome.address);
    message->mutable_welcome()->set_heartbeat_interval_ms(welcome.heartbeat_interval);
    message->mutable_welcome()->set_resumed(welcome.resumed);
  }
  void operator()(const Rejected& rejected) const {
    v1::Rejected* wire = message->mutable_rejected();
    wire->set_reason(static_cast<v1::Rejected::Reason>(rejected.reason));
    wire->set_message(rejected.message);
    wire->set_job(rejected.job);
  }
  void operator()(const Waiting& waiting) const {
    v1::Waiting* wire = message->mutable_waiting();
    wire->set_joined(waiting.joined);
    wire->set_min_nodes(waiting.min_nodes);
    wire->set_max_nodes(waiting.max_nodes);
    wire->set_spare(waiting.spare);
    wire->set_restart_in_ms(waiting.restart_in);
    wire->set_reason(waiting.reason);
  }
  void operator()(const Assignment& assignment) const {
    const Membership& membership = *assignment.membership;
    v1::Assignment* wire = message->mutable_assignment();
    wire->set_group_rank(assignment.group_rank);
    wire->set_world_size(membership.world_size);
    wire->set_node_count(static_cast<int>(membership.nodes.size()));
    const Node& node = membership.nodes[static_cast<std::size_t>(assignment.group_rank)];
    wire->mutable_node()->set_host(node.host);
    wire->mutable_node()->set_address(node.address);
    wire->mutable_node()->set_nproc(node.nproc);
    wire->mutable_node()->set_first_rank(node.first_rank);
    wire->mutable_node()->set_member_id(node.member_id);
    wire->set_restart_count(membership.restart_count);
    wire->set_membership_changes(membership.membership_changes);
    to_wire(membership.crash_history, wire->mutable_crash_history());
    wire->set_master_address(membership.master_address);
    wire->set_master_port(membership.master_port);
    wire->set_reason(membership.reason);
  }
  void operator()(const StopOrder& stop) const { message->mutable_stop()->set_reason(stop.reason); }
  void operator()(const JobEnd& end) const {
    const JobResult& result = *end.result;
    v1::JobEnd* wire = message->mutable_job_end();
    wire->set_exit_code(result.exit_code);
    wire->set_reason(result.reason);
    if (result.first_failure) to_wire(*result.first_failure, wire->mutable_first_failure());
    for (const Outcome& follower : result.followers) to_wire(follower, wire->add_followers());
    wire->set_more_followers(result.more_followers);
    wire->set_restart_count(result.restart_count);
    wire->set_membership_changes(result.membership_changes);
  }
  void operator()(const Close&) const {}
};

}  // namespace

Event to_event(ConnectionId from, const v1::FromAgent& message, const std::string& peer_address) {
  Event event{from, message.generation(), Heartbeat{}};
  switch (message.body_case()) {
    case v1::FromAgent::kJoin:
      event.body = from_wire(message.join(), peer_address);
      break;
    case v1::FromAgent::kFailure:
      event.body = Failure{from_wire(message.failure().outcome())};
      break;
    case v1::FromAgent::kStopped:
      event.body = from_wire(message.stopped());
      break;
    case v1::FromAgent::kFinished:
      event.body = Finished{};
      break;
    case v1::FromAgent::kLeave:
      event.body = Leave{message.leave().signal()};
      break;
    case v1::FromAgent::kHeartbeat:
      event.body = from_wire(message.heartbeat());
      break;
    case v1::FromAgent::BODY_NOT_SET:
      break;
  }
  return event;
}

v1::FromCoordinator to_message(const Action& action) {
  v1::FromCoordinator message;
  message.set_generation(action.generation);
  std::visit(BodyWriter{&message}, action.body);
  return message;
}

std::string address_of_peer(const std::string& grpc_peer) {
  const std::size_t colon = grpc_peer.rfind(':');
  if (grpc_peer.starts_with("ipv4:") && colon > 5) return grpc_peer.substr(5, colon - 5);
  if (!grpc_peer.starts_with("ipv6:") || colon <= 5) return "";
  std::string address = grpc_peer.substr(5, colon - 5);
  const auto strip = [&](const std::string& front, const std::string& back) {
    if (!address.starts_with(front) || !address.ends_with(back)) return;
    address = address.substr(front.size(), address.size() - front.size() - back.size());
  };
  strip("%5B", "%5D");
  strip("[", "]");
  const std::string mapped = "::ffff:";  // IPv4 seen through a dual-stack socket
  if (address.starts_with(mapped) && address.find('.') != std::string::npos) address.erase(0, mapped.size());
  return address;
}

}  // namespace dtrun::rendezvous
