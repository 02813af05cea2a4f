// The name of a connection's other end, as gRPC writes it.
#pragma once

#include <sys/socket.h>

#include <string>

namespace dtrun::rendezvous {

// With the port. `from` is an address of IPv4 or IPv6; one of IPv4 within IPv6 is one of IPv4.
std::string peer_name(const sockaddr_storage& from);

}  // namespace dtrun::rendezvous
