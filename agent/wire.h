// Translates between the wire's messages and the pure core's structs.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/decide.h"
#include "agent/core/job_spec.h"
#include "proto/control.pb.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::agent {

namespace wire = dtrun::rendezvous::v1;

// Nothing for a message that this version does not know.
std::optional<Event> to_event(const wire::FromCoordinator& message, const JobSpec& spec);

// `pids` by local rank, 0 for a worker that does not run.
wire::FromAgent to_message(const action::SendHeartbeat& send, const std::vector<pid_t>& pids,
                           const std::optional<control::Progress>& progress);
wire::FromAgent to_message(const action::SendFailure& send);
wire::FromAgent to_message(const action::SendStopped& send);
wire::FromAgent to_message(const action::SendFinished& send);
wire::FromAgent to_message(const action::SendLeave& send);

// Who this agent is: the part of Join that the core does not decide.
struct Identity {
  std::string member_id;
  std::string host;
  std::string address;
  int master_port = 0;
};
wire::FromAgent to_message(const action::SendJoin& send, const JobSpec& spec, const Identity& identity);

}  // namespace dtrun::agent
