#include "agent/wire.h"

#include <utility>

#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "proto/core/utf8.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::agent {
namespace {

// An assignment that contradicts itself is refused.
std::optional<Event> assigned(Assignment assignment) {
  const bool placed = assignment.group_rank >= 0 && assignment.group_rank < assignment.node_count;
  if (!placed || assignment.node.nproc < 1) return std::nullopt;
  return event::Assigned{std::move(assignment)};
}

Event rejected(const rendezvous::Rejected& refusal, const JobSpec& spec) {
  using rendezvous::Rejected;
  event::Rejected out{.exit_code = kExitUnavailable,
                      .job_over = refusal.reason == Rejected::kJobOver,
                      .message = refusal.message};
  if (refusal.reason == Rejected::kOtherSettings) out.exit_code = kExitUsage;
  if (refusal.reason == Rejected::kOtherDevice || refusal.reason == Rejected::kOtherProtocol)
    out.exit_code = kExitConfig;
  if (refusal.reason == Rejected::kNotPermitted) out.exit_code = kExitNoPermission;
  if (refusal.reason == Rejected::kOtherJob) {
    out.exit_code = kExitConfig;
    const std::string difference = spec.describe_difference ? spec.describe_difference(refusal.job) : "";
    if (!difference.empty()) out.message += "\n  " + difference;
  }
  return out;
}

wire::FromAgent message_of(std::int64_t generation) {
  wire::FromAgent message;
  message.set_generation(generation);
  return message;
}

// For people who hear that commands differ: a script on the command line is not sent whole.
std::vector<std::string> words_of(const ExternalProgram& program) {
  constexpr std::size_t kWords = 64, kLength = 256;
  std::vector<std::string> words;
  for (const std::string& word : program.argv) {
    if (words.size() == kWords) break;
    words.push_back(printable(word.substr(0, kLength)));
  }
  return words;
}

// Only the built-in trainer's device is compared: other programs may compute on any device.
void set_trainer(const BuiltinTrainer& trainer, const std::vector<Gpu>& gpus, rendezvous::Join* join) {
  join->job = trainer.config_json;
  const std::string cpu = trainer.processor.empty() ? "cpu" : trainer.processor;
  join->device = trainer.cuda ? "cuda" : cpu;
  if (!gpus.empty()) join->gpu = gpus.front().name;
  join->least_workers = trainer.least_workers;
}

// The facts in every Join, also in that of an agent which has not been in any generation.
rendezvous::Join newcomer(const JobSpec& spec, const Identity& identity, bool hosts) {
  rendezvous::Join join;
  join.run_id = spec.run_id;
  join.member_id = identity.member_id;
  join.host = identity.host;
  join.address = identity.address;
  join.nproc = spec.nproc;
  join.node_rank = spec.node_rank.value_or(-1);
  join.topology = spec.topology;
  join.preferred_rank = spec.preferred_rank;
  join.min_nodes = spec.nodes.min;
  join.max_nodes = spec.nodes.max;
  join.max_restarts = spec.max_restarts;
  join.crash_loop_limit = spec.crash_loop_limit;
  join.last_call = spec.rendezvous.last_call.count();
  join.join_timeout = spec.rendezvous.join_timeout.count();
  join.heartbeat_timeout = spec.rendezvous.keep_alive_timeout.count();
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program))
    set_trainer(*trainer, spec.gpus, &join);
  else
    join.command = words_of(std::get<ExternalProgram>(spec.program));
  join.in_memory_recovery = in_memory_recovery(spec);
  for (const Gpu& gpu : spec.gpus) join.gpus.push_back(gpu.number);
  join.master_port = identity.master_port;
  join.hosts = hosts;
  return join;
}

}  // namespace

std::optional<Event> to_event(const wire::FromCoordinator& message, const JobSpec& spec) {
  using Body = wire::FromCoordinator;
  using rendezvous::from_wire;
  switch (message.body_case()) {
    case Body::kJoinAck:
      return from_wire(message.join_ack());
    case Body::kRejected:
      return rejected(from_wire(message.rejected()), spec);
    case Body::kWaitStatus:
      return from_wire(message.wait_status());
    case Body::kNews:
      return from_wire(message.news());
    case Body::kVerdict:
      return from_wire(message.verdict());
    case Body::kAssignment:
      return assigned(from_wire(message.generation(), message.assignment()));
    case Body::kStop:
      return event::StopOrder{.generation = message.generation(),
                              .reason = message.stop().reason(),
                              .look = message.stop().look(),
                              .after_step = message.stop().after_step()};
    case Body::kJobEnd:
      return event::Ended{from_wire(message.job_end())};
    case Body::kTrace:  // is answered without a decision
    case Body::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

wire::FromAgent to_message(const action::SendHeartbeat& send, const std::vector<pid_t>& pids,
                           const std::vector<WorkerReport>& workers) {
  wire::FromAgent message = message_of(send.generation);
  const rendezvous::Heartbeat heartbeat{
      .pids = pids, .progress = send.progress, .outlives = send.outlives, .workers = workers};
  to_wire(heartbeat, message.mutable_heartbeat());
  return message;
}

wire::FromAgent to_message(const action::SendFailure& send) {
  wire::FromAgent message = message_of(send.generation);
  to_wire(send.outcome, message.mutable_failure()->mutable_outcome());
  return message;
}

wire::FromAgent to_message(const action::SendStopped& send) {
  wire::FromAgent message = message_of(send.generation);
  to_wire(rendezvous::Stopped{send.outcomes, send.workers, send.parted}, message.mutable_stopped());
  return message;
}

wire::FromAgent to_message(const action::SendReady& send) {
  wire::FromAgent message = message_of(send.generation);
  message.mutable_ready();
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
  message.mutable_leave()->set_soon(send.soon);
  message.mutable_leave()->set_replaced(send.replaced);
  return message;
}

wire::FromAgent to_message(const action::SendJoin& send, const JobSpec& spec, const Identity& identity) {
  const Assignment& running = send.running;
  rendezvous::Join join = newcomer(spec, identity, send.hosting);
  if (running.generation > 0) {
    join.group_rank = running.group_rank;
    join.node_count = running.node_count;
    join.first_rank = running.node.first_rank;
    join.world_size = running.world_size;
    join.restart_count = running.restart_count;
    join.membership_changes = running.membership_changes;
    join.crash_history = running.crash_history;
    join.goodput = running.goodput;
    join.seat_hosts = running.hosts;
    join.age = send.age;
    join.workers = running.node.nproc;
  }
  wire::FromAgent message = message_of(running.generation);
  to_wire(join, message.mutable_join());
  return message;
}

event::WorkerReady to_event(int serial, const control::Ready& message) {
  event::WorkerReady ready{
      .serial = serial, .step = {}, .error = printable_lines(message.error()), .torn = message.torn()};
  if (message.has_step()) ready.step = message.step();
  return ready;
}

control::FromAgent hello_ack(bool outlives, const std::string& unit_file) {
  control::FromAgent message;
  message.mutable_hello_ack()->set_protocol(kControlProtocol);
  message.mutable_hello_ack()->set_outlives(outlives);
  message.mutable_hello_ack()->set_unit_file(unit_file);
  return message;
}

control::FromAgent job_message(const BuiltinTrainer& trainer, const std::vector<Gpu>& gpus, int local_rank,
                               WorkerMemory memory) {
  control::FromAgent message;
  control::Job* job = message.mutable_job();
  job->set_config_json(trainer.config_json);
  job->set_lanes(trainer.lanes);
  if (memory.in_memory_checkpoint) job->set_in_memory_checkpoint_fd(kInMemoryCheckpointFd);
  if (memory.operations) job->set_operations_fd(kOperationsFd);
  if (memory.data) job->set_data_fd(kDataFd);
  job->set_only_agent_stops(trainer.only_agent_stops);
  job->set_device(trainer.cuda ? "cuda" : "cpu");
  if (trainer.cuda) job->set_gpu(gpus[static_cast<std::size_t>(local_rank)].index);
  return message;
}

control::FromAgent start_message(const Assignment& assignment, int rank, int index) {
  control::FromAgent message;
  control::Start* start = message.mutable_start();
  start->set_rank(rank);
  start->set_world_size(assignment.world_size);
  start->set_local_rank(index);
  start->set_generation(assignment.generation);
  start->set_address(assignment.node.address);
  return message;
}

control::FromAgent end_message(const action::EndWorker& end) {
  control::FromAgent message;
  message.mutable_end()->set_last(end.last);
  message.mutable_end()->set_rank(end.rank);
  message.mutable_end()->set_world_size(end.world_size);
  return message;
}

control::FromAgent stop_message(control::Stop::Kind kind, const std::string& reason, bool leaves) {
  control::FromAgent message;
  message.mutable_stop()->set_leaves(leaves);
  message.mutable_stop()->set_kind(kind);
  message.mutable_stop()->set_reason(reason);
  return message;
}

}  // namespace dtrun::agent
