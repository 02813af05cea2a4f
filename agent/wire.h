// Maps the agent's events and actions onto the messages of coordinator and workers. The structs inside them
// are turned into messages by rendezvous/wire/convert.h.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "agent/core/supervisor/decide.h"
#include "agent/process/spawn.h"
#include "proto/control.pb.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::agent {

namespace wire = dtrun::rendezvous::v1;

// ---- the coordinator

// Nothing for a message that this version does not know.
std::optional<Event> to_event(const wire::FromCoordinator& message, const JobSpec& spec);

// `pids` and `workers` by local rank, 0 for a worker that does not run.
wire::FromAgent to_message(const action::SendHeartbeat& send, const std::vector<pid_t>& pids,
                           const std::vector<WorkerReport>& workers);
wire::FromAgent to_message(const action::SendFailure& send);
wire::FromAgent to_message(const action::SendStopped& send);
wire::FromAgent to_message(const action::SendReady& send);
wire::FromAgent to_message(const action::SendFinished& send);
wire::FromAgent to_message(const action::SendLeave& send);

// This agent's identity: the part of Join that the core does not decide.
struct Identity {
  std::string member_id;
  std::string host;
  std::string address;
  int master_port = 0;
};
wire::FromAgent to_message(const action::SendJoin& send, const JobSpec& spec, const Identity& identity);

// ---- workers

event::WorkerReady to_event(int serial, const control::Ready& message);

// The answers to Hello: to a program, and to a worker of the built-in trainer. `gpus` by local rank, where
// the trainer computes on them.
control::FromAgent hello_ack(bool outlives, const std::string& unit_file);
control::FromAgent job_message(const BuiltinTrainer& trainer, const std::vector<Gpu>& gpus, int local_rank,
                               WorkerMemory memory = {});
// `index`: among this node's workers of the generation.
control::FromAgent start_message(const Assignment& assignment, int rank, int index);
control::FromAgent end_message(const action::EndWorker& end);
control::FromAgent stop_message(control::Stop::Kind kind, const std::string& reason, bool leaves = false);

}  // namespace dtrun::agent
