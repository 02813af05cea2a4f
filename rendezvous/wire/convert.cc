// Each struct has a from_wire() and a to_wire(); small ones first, then the messages of agents, then those of
// the coordinator.
#include "rendezvous/wire/convert.h"

#include <string_view>
#include <utility>

#include "proto/core/utf8.h"
#include "proto/wire/training.h"

namespace dtrun::rendezvous {

WorkerOutcome from_wire(const v1::WorkerOutcome& wire) {
  return {.rank = wire.rank(),
          .local_rank = wire.local_rank(),
          .group_rank = wire.group_rank(),
          .pid = wire.pid(),
          .host = wire.host(),
          .exit_code = wire.exit_code(),
          .signal = wire.signal(),
          .collateral = wire.collateral(),
          .retryable = wire.retryable(),
          .stderr_tail = {wire.stderr_tail().begin(), wire.stderr_tail().end()},
          .error = wire.error(),
          .uptime_s = wire.uptime_s(),
          .traceback = wire.traceback(),
          .ended_at = wire.ended_at(),
          .cause = static_cast<EndCause>(wire.cause()),
          .where = wire.where(),
          .activity = static_cast<Activity>(wire.activity()),
          .gpu = wire.gpu(),
          .error_at = wire.error_at()};
}

void to_wire(const WorkerOutcome& outcome, v1::WorkerOutcome* wire) {
  wire->set_rank(outcome.rank);
  wire->set_local_rank(outcome.local_rank);
  wire->set_group_rank(outcome.group_rank);
  wire->set_pid(outcome.pid);
  wire->set_host(outcome.host);
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
  wire->set_where(outcome.where);
  wire->set_activity(static_cast<v1::Activity>(outcome.activity));
  wire->set_gpu(outcome.gpu);
  wire->set_error_at(outcome.error_at);
}

FailureCounts from_wire(const v1::FailureCounts& wire) {
  return {.exit = wire.exit(),
          .signal = wire.signal(),
          .out_of_memory = wire.out_of_memory(),
          .hung = wire.hung(),
          .node_lost = wire.node_lost()};
}

void to_wire(const FailureCounts& failures, v1::FailureCounts* wire) {
  wire->set_exit(failures.exit);
  wire->set_signal(failures.signal);
  wire->set_out_of_memory(failures.out_of_memory);
  wire->set_hung(failures.hung);
  wire->set_node_lost(failures.node_lost);
}

CrashHistory from_wire(const v1::CrashHistory& wire) {
  return {.quick_restarts = wire.quick_restarts(),
          .best_step = wire.best_step(),
          .alike = wire.alike(),
          .rank = wire.rank(),
          .exit_code = wire.exit_code(),
          .signal = wire.signal(),
          .failures = from_wire(wire.failures())};
}

void to_wire(const CrashHistory& history, v1::CrashHistory* wire) {
  wire->set_quick_restarts(history.quick_restarts);
  wire->set_best_step(history.best_step);
  wire->set_alike(history.alike);
  wire->set_rank(history.rank);
  wire->set_exit_code(history.exit_code);
  wire->set_signal(history.signal);
  if (history.failures != FailureCounts{}) to_wire(history.failures, wire->mutable_failures());
}

Goodput from_wire(const v1::Goodput& wire) {
  return {.training = wire.training(),
          .redone = wire.redone(),
          .loading = wire.loading(),
          .evaluating = wire.evaluating(),
          .saving = wire.saving(),
          .rendezvous = wire.rendezvous(),
          .waiting = wire.waiting(),
          .down = wire.down(),
          .steps_redone = wire.steps_redone(),
          .best_step = wire.best_step()};
}

void to_wire(const Goodput& goodput, v1::Goodput* wire) {
  wire->set_training(goodput.training);
  wire->set_redone(goodput.redone);
  wire->set_loading(goodput.loading);
  wire->set_evaluating(goodput.evaluating);
  wire->set_saving(goodput.saving);
  wire->set_rendezvous(goodput.rendezvous);
  wire->set_waiting(goodput.waiting);
  wire->set_down(goodput.down);
  wire->set_steps_redone(goodput.steps_redone);
  wire->set_best_step(goodput.best_step);
}

// ---- from agents

Join from_wire(const v1::Join& wire) {
  return {.run_id = wire.run_id(),
          .member_id = wire.member_id(),
          .host = wire.host(),
          .address = wire.address(),
          .nproc = wire.nproc(),
          .node_rank = wire.node_rank(),
          .min_nodes = wire.min_nodes(),
          .max_nodes = wire.max_nodes(),
          .max_restarts = wire.max_restarts(),
          .crash_loop_limit = wire.crash_loop_limit(),
          .last_call = wire.last_call_ms(),
          .join_timeout = wire.join_timeout_ms(),
          .heartbeat_timeout = wire.heartbeat_timeout_ms(),
          .job = wire.job(),
          .master_port = wire.master_port(),
          .group_rank = wire.group_rank(),
          .node_count = wire.node_count(),
          .first_rank = wire.first_rank(),
          .world_size = wire.world_size(),
          .restart_count = wire.restart_count(),
          .membership_changes = wire.membership_changes(),
          .crash_history = from_wire(wire.crash_history()),
          .goodput = from_wire(wire.goodput()),
          .age = wire.age_ms(),
          .hosts = wire.hosts(),
          .command = {wire.command().begin(), wire.command().end()},
          .workers = wire.workers(),
          .in_memory_recovery = wire.in_memory_recovery(),
          .device = wire.device(),
          .gpu = wire.gpu(),
          .gpus = {wire.gpus().begin(), wire.gpus().end()},
          .topology = wire.topology(),
          .term = wire.term(),
          .least_workers = wire.least_workers(),
          .preferred_rank = wire.has_preferred_rank() ? std::optional(wire.preferred_rank()) : std::nullopt,
          .protocol = wire.protocol()};
}

void to_wire(const Join& join, v1::Join* wire) {
  wire->set_run_id(join.run_id);
  wire->set_member_id(join.member_id);
  wire->set_host(join.host);
  wire->set_address(join.address);
  wire->set_nproc(join.nproc);
  wire->set_node_rank(join.node_rank);
  wire->set_min_nodes(join.min_nodes);
  wire->set_max_nodes(join.max_nodes);
  wire->set_max_restarts(join.max_restarts);
  wire->set_crash_loop_limit(join.crash_loop_limit);
  wire->set_last_call_ms(join.last_call);
  wire->set_join_timeout_ms(join.join_timeout);
  wire->set_heartbeat_timeout_ms(join.heartbeat_timeout);
  wire->set_job(join.job);
  wire->set_master_port(join.master_port);
  wire->set_group_rank(join.group_rank);
  wire->set_node_count(join.node_count);
  wire->set_first_rank(join.first_rank);
  wire->set_world_size(join.world_size);
  wire->set_restart_count(join.restart_count);
  wire->set_membership_changes(join.membership_changes);
  if (join.crash_history != CrashHistory{}) to_wire(join.crash_history, wire->mutable_crash_history());
  if (join.goodput != Goodput{}) to_wire(join.goodput, wire->mutable_goodput());
  wire->set_age_ms(join.age);
  wire->set_hosts(join.hosts);
  for (const std::string& word : join.command) wire->add_command(word);
  wire->set_workers(join.workers);
  wire->set_in_memory_recovery(join.in_memory_recovery);
  wire->set_device(join.device);
  wire->set_gpu(join.gpu);
  for (int gpu : join.gpus) wire->add_gpus(gpu);
  wire->set_topology(join.topology);
  wire->set_term(join.term);
  wire->set_least_workers(join.least_workers);
  if (join.preferred_rank) wire->set_preferred_rank(*join.preferred_rank);
  wire->set_protocol(join.protocol);
}

Stopped from_wire(const v1::Stopped& wire) {
  Stopped stopped;
  for (const v1::WorkerOutcome& outcome : wire.outcomes()) stopped.outcomes.push_back(from_wire(outcome));
  if (wire.has_workers()) stopped.workers = wire.workers();
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
  for (const WorkerOutcome& outcome : stopped.outcomes) to_wire(outcome, wire->add_outcomes());
  for (v1::WorkerOutcome& outcome : *wire->mutable_outcomes())
    fit(kMostOfOutcomes / stopped.outcomes.size(), &outcome);
  if (stopped.workers) wire->set_workers(*stopped.workers);
}

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
      event.body = Leave{.signal = message.leave().signal(),
                         .soon = message.leave().soon(),
                         .replaced = message.leave().replaced()};
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

JoinAck from_wire(const v1::JoinAck& wire) {
  return {.address = wire.address(),
          .heartbeat_interval = wire.heartbeat_interval_ms(),
          .resumed = wire.resumed(),
          .separate = wire.separate(),
          .instance = wire.instance()};
}

void to_wire(const JoinAck& join_ack, v1::JoinAck* wire) {
  wire->set_address(join_ack.address);
  wire->set_heartbeat_interval_ms(join_ack.heartbeat_interval);
  wire->set_resumed(join_ack.resumed);
  wire->set_separate(join_ack.separate);
  wire->set_instance(join_ack.instance);
}

Rejected from_wire(const v1::Rejected& wire) {
  return {
      .reason = static_cast<Rejected::Reason>(wire.reason()), .message = wire.message(), .job = wire.job()};
}

void to_wire(const Rejected& rejected, v1::Rejected* wire) {
  wire->set_reason(static_cast<v1::Rejected::Reason>(rejected.reason));
  wire->set_message(rejected.message);
  wire->set_job(rejected.job);
}

News from_wire(const v1::News& wire) {
  return {.kind = static_cast<News::Kind>(wire.kind()),
          .host = wire.host(),
          .text = wire.text(),
          .age = wire.age_ms()};
}

void to_wire(const News& news, v1::News* wire) {
  wire->set_kind(static_cast<v1::News::Kind>(news.kind));
  wire->set_host(news.host);
  wire->set_text(news.text);
  wire->set_age_ms(news.age);
}

WaitStatus from_wire(const v1::WaitStatus& wire) {
  WaitStatus waiting{.joined = wire.joined(),
                     .min_nodes = wire.min_nodes(),
                     .max_nodes = wire.max_nodes(),
                     .spare = wire.spare(),
                     .restart_in = wire.restart_in_ms(),
                     .reason = wire.reason(),
                     .missing = {},
                     .left = wire.left_ms(),
                     .away = wire.away(),
                     .outlives = wire.outlives(),
                     .short_of_workers = wire.short_of_workers()};
  for (const v1::News& news : wire.missing()) waiting.missing.push_back(from_wire(news));
  return waiting;
}

void to_wire(const WaitStatus& waiting, v1::WaitStatus* wire) {
  wire->set_joined(waiting.joined);
  wire->set_min_nodes(waiting.min_nodes);
  wire->set_max_nodes(waiting.max_nodes);
  wire->set_spare(waiting.spare);
  wire->set_restart_in_ms(waiting.restart_in);
  wire->set_reason(waiting.reason);
  for (const News& news : waiting.missing) to_wire(news, wire->add_missing());
  wire->set_left_ms(waiting.left);
  wire->set_away(waiting.away);
  wire->set_outlives(waiting.outlives);
  wire->set_short_of_workers(waiting.short_of_workers);
}

Node from_wire(const v1::Node& wire) {
  return {.host = wire.host(),
          .address = wire.address(),
          .nproc = wire.nproc(),
          .first_rank = wire.first_rank(),
          .member_id = wire.member_id()};
}

void to_wire(const Node& node, v1::Node* wire) {
  wire->set_host(node.host);
  wire->set_address(node.address);
  wire->set_nproc(node.nproc);
  wire->set_first_rank(node.first_rank);
  wire->set_member_id(node.member_id);
}

Assignment from_wire(std::int64_t generation, const v1::Assignment& wire) {
  Assignment assignment;
  assignment.generation = generation;
  assignment.world_size = wire.world_size();
  assignment.restart_count = wire.restart_count();
  assignment.membership_changes = wire.membership_changes();
  assignment.crash_history = from_wire(wire.crash_history());
  assignment.goodput = from_wire(wire.goodput());
  assignment.master_address = wire.master_address();
  assignment.master_port = wire.master_port();
  assignment.reason = wire.reason();
  assignment.group_rank = wire.group_rank();
  assignment.node_count = wire.node_count();
  assignment.node = from_wire(wire.node());
  return assignment;
}

void to_wire(const Assignment& assignment, v1::Assignment* wire) {
  wire->set_world_size(assignment.world_size);
  wire->set_restart_count(assignment.restart_count);
  wire->set_membership_changes(assignment.membership_changes);
  to_wire(assignment.crash_history, wire->mutable_crash_history());
  to_wire(assignment.goodput, wire->mutable_goodput());
  wire->set_master_address(assignment.master_address);
  wire->set_master_port(assignment.master_port);
  wire->set_reason(assignment.reason);
  wire->set_group_rank(assignment.group_rank);
  wire->set_node_count(assignment.node_count);
  to_wire(assignment.node, wire->mutable_node());
}

StopOrder from_wire(const v1::StopOrder& wire) {
  return {.reason = wire.reason(), .look = wire.look(), .after_step = wire.after_step()};
}

void to_wire(const StopOrder& stop, v1::StopOrder* wire) {
  wire->set_reason(stop.reason);
  wire->set_look(stop.look);
  wire->set_after_step(stop.after_step);
}

namespace {

using WireRanges = google::protobuf::RepeatedPtrField<v1::RankRange>;

std::vector<RankRange> from_wire(const WireRanges& wire) {
  std::vector<RankRange> ranges;
  for (const v1::RankRange& range : wire) ranges.push_back({range.first(), range.last()});
  return ranges;
}

void to_wire(const std::vector<RankRange>& ranges, WireRanges* wire) {
  for (const RankRange& range : ranges) {
    v1::RankRange* added = wire->Add();
    added->set_first(range.first);
    added->set_last(range.last);
  }
}

}  // namespace

Hang from_wire(const v1::Hang& wire) {
  Hang hang{.ranks = from_wire(wire.ranks()),
            .what = wire.what(),
            .places = {},
            .more = wire.more(),
            .suspects = from_wire(wire.suspects()),
            .verdict = wire.verdict()};
  for (const v1::LocationGroup& place : wire.places())
    hang.places.push_back({from_wire(place.ranks()), place.where(), place.more()});
  return hang;
}

void to_wire(const Hang& hang, v1::Hang* wire) {
  to_wire(hang.ranks, wire->mutable_ranks());
  wire->set_what(hang.what);
  for (const LocationGroup& place : hang.places) {
    v1::LocationGroup* added = wire->add_places();
    to_wire(place.ranks, added->mutable_ranks());
    added->set_where(place.where);
    added->set_more(place.more);
  }
  wire->set_more(hang.more);
  to_wire(hang.suspects, wire->mutable_suspects());
  wire->set_verdict(hang.verdict);
}

Verdict from_wire(const v1::Verdict& wire) {
  return {.text = wire.text(),
          .rank = wire.rank(),
          .cause = wire.cause(),
          .loss = wire.loss(),
          .serious = wire.serious(),
          .step = wire.step()};
}

void to_wire(const Verdict& verdict, v1::Verdict* wire) {
  wire->set_text(verdict.text);
  wire->set_rank(verdict.rank);
  wire->set_cause(verdict.cause);
  wire->set_loss(verdict.loss);
  wire->set_serious(verdict.serious);
  wire->set_step(verdict.step);
}

JobEnd from_wire(const v1::JobEnd& wire) {
  JobEnd end{.exit_code = wire.exit_code(),
             .reason = wire.reason(),
             .first_failure = std::nullopt,
             .followers = {},
             .more_followers = wire.more_followers(),
             .restart_count = wire.restart_count(),
             .membership_changes = wire.membership_changes(),
             .hang = std::nullopt,
             .goodput = from_wire(wire.goodput()),
             .verdict = std::nullopt};
  if (wire.has_verdict()) end.verdict = from_wire(wire.verdict());
  if (wire.has_hang()) end.hang = from_wire(wire.hang());
  if (wire.has_first_failure()) end.first_failure = from_wire(wire.first_failure());
  for (const v1::WorkerOutcome& follower : wire.followers()) end.followers.push_back(from_wire(follower));
  return end;
}

void to_wire(const JobEnd& end, v1::JobEnd* wire) {
  wire->set_exit_code(end.exit_code);
  wire->set_reason(end.reason);
  if (end.first_failure) to_wire(*end.first_failure, wire->mutable_first_failure());
  for (const WorkerOutcome& follower : end.followers) to_wire(follower, wire->add_followers());
  wire->set_more_followers(end.more_followers);
  wire->set_restart_count(end.restart_count);
  wire->set_membership_changes(end.membership_changes);
  if (end.hang) to_wire(*end.hang, wire->mutable_hang());
  to_wire(end.goodput, wire->mutable_goodput());
  if (end.verdict) to_wire(*end.verdict, wire->mutable_verdict());
}

namespace {

// The member's own part of the membership.
Assignment assignment_of(const Assigned& assigned) {
  const Membership& membership = *assigned.membership;
  return {membership, assigned.group_rank, static_cast<int>(membership.nodes.size()),
          membership.nodes[static_cast<std::size_t>(assigned.group_rank)]};
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
