// The origin of a connection.
#pragma once

#include <sys/socket.h>

#include <string>

namespace dtrun::rendezvous {

struct Origin {
  // The address without the port, as sources are told apart; for IPv6 the network, since one host may have
  // all its addresses. Not for people: bytes.
  std::string source;
  std::string name;  // as gRPC writes it, with the port
};

// `from` is an address of IPv4 or IPv6; one of IPv4 within IPv6 is one of IPv4.
Origin origin_of(const sockaddr_storage& from);

}  // namespace dtrun::rendezvous
