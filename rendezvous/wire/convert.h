// Between the wire's messages and the structs of rendezvous/core/messages.h, for agents and coordinator
// alike. Total: any message that parses converts. tests/rendezvous/wire/ sets every field of every pair.
#pragma once

#include <cstddef>
#include <string>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

WorkerOutcome from_wire(const v1::WorkerOutcome& wire);
void to_wire(const WorkerOutcome& outcome, v1::WorkerOutcome* wire);

FailureCounts from_wire(const v1::FailureCounts& wire);
void to_wire(const FailureCounts& failures, v1::FailureCounts* wire);

CrashHistory from_wire(const v1::CrashHistory& wire);
void to_wire(const CrashHistory& history, v1::CrashHistory* wire);

Goodput from_wire(const v1::Goodput& wire);
void to_wire(const Goodput& goodput, v1::Goodput* wire);

// ---- from agents

Join from_wire(const v1::Join& wire);
void to_wire(const Join& join, v1::Join* wire);

WorkerUsage from_wire(const v1::WorkerUsage& wire);
void to_wire(const WorkerUsage& usage, v1::WorkerUsage* wire);

GpuUse from_wire(const v1::GpuUse& wire);
void to_wire(const GpuUse& use, v1::GpuUse* wire);

Quiet from_wire(const v1::Quiet& wire);
void to_wire(const Quiet& quiet, v1::Quiet* wire);

WorkerReport from_wire(const v1::WorkerReport& wire);
void to_wire(const WorkerReport& report, v1::WorkerReport* wire);

Heartbeat from_wire(const v1::Heartbeat& wire);
void to_wire(const Heartbeat& heartbeat, v1::Heartbeat* wire);

// Texts of outcomes are cut so that all fit into a message: a worker's last output is cut last.
inline constexpr std::size_t kMostOfOutcomes = 2 << 20;  // bytes
Stopped from_wire(const v1::Stopped& wire);
void to_wire(const Stopped& stopped, v1::Stopped* wire);

// An agent's message as an event. An empty or unknown message becomes a Heartbeat. `peer_address` is used if
// a Join names no address.
Event to_event(ConnectionId from, const v1::FromAgent& message, const std::string& peer_address);

// ---- to agents

JoinAck from_wire(const v1::JoinAck& wire);
void to_wire(const JoinAck& join_ack, v1::JoinAck* wire);

Rejected from_wire(const v1::Rejected& wire);
void to_wire(const Rejected& rejected, v1::Rejected* wire);

News from_wire(const v1::News& wire);
void to_wire(const News& news, v1::News* wire);

WaitStatus from_wire(const v1::WaitStatus& wire);
void to_wire(const WaitStatus& waiting, v1::WaitStatus* wire);

Node from_wire(const v1::Node& wire);
void to_wire(const Node& node, v1::Node* wire);

// The generation's number stands beside the message, in FromCoordinator.
Assignment from_wire(std::int64_t generation, const v1::Assignment& wire);
void to_wire(const Assignment& assignment, v1::Assignment* wire);

StopOrder from_wire(const v1::StopOrder& wire);
void to_wire(const StopOrder& stop, v1::StopOrder* wire);

Verdict from_wire(const v1::Verdict& wire);
void to_wire(const Verdict& verdict, v1::Verdict* wire);

Hang from_wire(const v1::Hang& wire);
void to_wire(const Hang& hang, v1::Hang* wire);

JobEnd from_wire(const v1::JobEnd& wire);
void to_wire(const JobEnd& end, v1::JobEnd* wire);

// The coordinator's action as a message. REQUIRES: the action is a message, not Close.
v1::FromCoordinator to_message(const Action& action);

// "10.0.0.7" of gRPC's "ipv4:10.0.0.7:41234", "fd00::7" of "ipv6:%5Bfd00::7%5D:41234"; empty for anything
// else.
std::string address_of_peer(const std::string& grpc_peer);

}  // namespace dtrun::rendezvous
