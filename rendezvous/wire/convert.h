// Between the wire's messages and the pure core's structs. Total: any message that parses converts.
#pragma once

#include <string>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// An empty or unknown message becomes a Heartbeat. `peer_address` is used where a Join names no address.
Event to_event(ConnectionId from, const v1::FromAgent& message, const std::string& peer_address);

// REQUIRES: the action is a message, not Close.
v1::FromCoordinator to_message(const Action& action);

// "10.0.0.7" of gRPC's "ipv4:10.0.0.7:41234", "fd00::7" of "ipv6:%5Bfd00::7%5D:41234"; empty for anything
// else.
std::string address_of_peer(const std::string& grpc_peer);

}  // namespace dtrun::rendezvous
