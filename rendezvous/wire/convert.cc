// Each struct's list of fields; small ones first, then the messages of agents, then those of
// the coordinator.
#include "rendezvous/wire/convert.h"

#include <string_view>
#include <utility>

#include "proto/core/utf8.h"
#include "proto/wire/fields.h"
#include "proto/wire/training.h"

namespace dtrun::rendezvous {

DTRUN_WIRE(WorkerOutcome, v1::WorkerOutcome, rank, local_rank, group_rank, pid, host, exit_code, signal,
           collateral, retryable, stderr_tail, error, uptime_s, traceback, ended_at, cause, where, activity,
           gpu, error_at)

DTRUN_WIRE(FailureCounts, v1::FailureCounts, exit, signal, out_of_memory, hung, node_lost)

DTRUN_WIRE(CrashHistory, v1::CrashHistory, quick_restarts, best_step, alike, rank, exit_code, signal,
           failures)

DTRUN_WIRE(Goodput, v1::Goodput, training, redone, loading, evaluating, saving, rendezvous, waiting, down,
           steps_redone, best_step)

// ---- from agents

DTRUN_WIRE(Join, v1::Join, run_id, member_id, host, address, nproc, node_rank, min_nodes, max_nodes,
           max_restarts, crash_loop_limit, last_call, join_timeout, heartbeat_timeout, job, master_port,
           group_rank, node_count, first_rank, world_size, restart_count, membership_changes, crash_history,
           goodput, age, hosts, command, workers, in_memory_recovery, device, gpu, gpus, topology, term,
           least_workers, preferred_rank, protocol, seat_hosts)

DTRUN_FIELDS(Stopped, v1::Stopped, outcomes, workers, parted)

Stopped from_wire(const v1::Stopped& wire) {
  Stopped stopped;
  read_fields(wire, &stopped);
  return stopped;
}

namespace {

// The end of a text tells most.
void keep_last(std::size_t bytes, std::string* text) {
  if (text->size() > bytes) *text = "..." + printable(std::string_view(*text).substr(text->size() - bytes));
}

void fit(std::size_t bytes, v1::WorkerOutcome* outcome) {
  auto& lines = *outcome->mutable_stderr_tail();
  while (lines.size() > 1 && outcome->ByteSizeLong() > bytes) lines.erase(lines.begin());
  if (outcome->ByteSizeLong() <= bytes) return;
  for (std::string* text : {outcome->mutable_traceback(), outcome->mutable_error(), outcome->mutable_gpu()})
    keep_last(bytes / 4, text);
}

}  // namespace

void to_wire(const Stopped& stopped, v1::Stopped* wire) {
  write_fields(stopped, wire);
  for (v1::WorkerOutcome& outcome : *wire->mutable_outcomes())
    fit(kMostOfOutcomes / stopped.outcomes.size(), &outcome);
}

DTRUN_WIRE(Leave, v1::Leave, signal, soon, replaced)

Event to_event(ConnectionId from, const v1::FromAgent& message, const std::string& peer_address) {
  Event event{.from = from, .generation = message.generation(), .body = Heartbeat{}};
  switch (message.body_case()) {
    case v1::FromAgent::kJoin: {
      Join join = from_wire(message.join());
      if (join.address.empty()) join.address = peer_address;
      event.body = std::move(join);
      break;
    }
    case v1::FromAgent::kFailure:
      event.body = Failure{from_wire(message.failure().outcome())};
      break;
    case v1::FromAgent::kStopped:
      event.body = from_wire(message.stopped());
      break;
    case v1::FromAgent::kReady:
      event.body = Ready{};
      break;
    case v1::FromAgent::kFinished:
      event.body = Finished{};
      break;
    case v1::FromAgent::kLeave:
      event.body = from_wire(message.leave());
      break;
    case v1::FromAgent::kHeartbeat:
      event.body = from_wire(message.heartbeat());
      break;
    case v1::FromAgent::kTracePart:  // no event: it changes nothing
    case v1::FromAgent::BODY_NOT_SET:
      break;
  }
  return event;
}

// ---- to agents

DTRUN_WIRE(JoinAck, v1::JoinAck, address, heartbeat_interval, resumed, separate, instance)

DTRUN_WIRE(Rejected, v1::Rejected, reason, message, job)

DTRUN_WIRE(News, v1::News, kind, host, text, age)

DTRUN_WIRE(WaitStatus, v1::WaitStatus, joined, min_nodes, max_nodes, run_goes_on, restart_in, reason, missing,
           left, away, outlives, short_of_workers)

DTRUN_WIRE(Node, v1::Node, host, address, nproc, first_rank, member_id)

DTRUN_FIELDS(Assignment, v1::Assignment, world_size, restart_count, membership_changes, crash_history,
             goodput, master_address, master_port, reason, group_rank, node_count, node, hosts)

Assignment from_wire(std::int64_t generation, const v1::Assignment& wire) {
  Assignment assignment;
  assignment.generation = generation;
  read_fields(wire, &assignment);
  return assignment;
}

void to_wire(const Assignment& assignment, v1::Assignment* wire) { write_fields(assignment, wire); }

DTRUN_WIRE(StopOrder, v1::StopOrder, reason, look, after_step)

DTRUN_WIRE(RankRange, v1::RankRange, first, last)

DTRUN_WIRE(LocationGroup, v1::LocationGroup, ranks, where, more)

DTRUN_WIRE(Hang, v1::Hang, ranks, what, places, more, suspects, verdict)

DTRUN_WIRE(Verdict, v1::Verdict, text, rank, cause, loss)

DTRUN_WIRE(JobEnd, v1::JobEnd, exit_code, reason, first_failure, followers, more_followers, restart_count,
           membership_changes, hang, goodput, verdict)

namespace {

// The member's own part of the membership.
Assignment assignment_of(const Assigned& assigned) {
  const Membership& membership = *assigned.membership;
  Assignment assignment{membership, assigned.group_rank, static_cast<int>(membership.nodes.size()),
                        membership.nodes[static_cast<std::size_t>(assigned.group_rank)]};
  if (membership.nodes.size() <= Assignment::kMostNamed)
    for (const Node& node : membership.nodes) assignment.hosts.push_back(node.host);
  return assignment;
}

// Writes each action's body into the message of its type.
struct BodyWriter {
  v1::FromCoordinator* message;

  void operator()(const JoinAck& join_ack) const { to_wire(join_ack, message->mutable_join_ack()); }
  void operator()(const Rejected& rejected) const { to_wire(rejected, message->mutable_rejected()); }
  void operator()(const WaitStatus& waiting) const { to_wire(waiting, message->mutable_wait_status()); }
  void operator()(const News& news) const { to_wire(news, message->mutable_news()); }
  void operator()(const Assigned& assigned) const {
    to_wire(assignment_of(assigned), message->mutable_assignment());
  }
  void operator()(const StopOrder& stop) const { to_wire(stop, message->mutable_stop()); }
  void operator()(const Verdict& verdict) const { to_wire(verdict, message->mutable_verdict()); }
  void operator()(const Ended& ended) const { to_wire(*ended.result, message->mutable_job_end()); }
  void operator()(const Close&) const {}
};

}  // namespace

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
