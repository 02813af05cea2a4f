#include "proto/base/any_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace dtrun {
namespace {

Descriptor bound(int family, int port) {
  Descriptor held(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.open()) return {};
  // If both sockets have this option, Linux lets another one listen on a port that this one only holds; and
  // connections that this one leaves behind keep nobody from listening there later.
  const int on = 1, off = 0;
  setsockopt(held.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(held.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 any{};
  any.sin6_family = static_cast<sa_family_t>(family);
  any.sin6_port = htons(static_cast<std::uint16_t>(port));  // lies at the same place in both kinds of address
  const socklen_t size = family == AF_INET6 ? sizeof any : sizeof(sockaddr_in);
  if (bind(held.get(), reinterpret_cast<sockaddr*>(&any), size) == 0) return held;
  const int error = errno;
  held.reset();
  errno = error;
  return {};
}

}  // namespace

Descriptor bound_to_all(int port) {
  Descriptor both = bound(AF_INET6, port);
  return both.open() || errno == EADDRINUSE ? std::move(both) : bound(AF_INET, port);
}

int port_of(int socket) {
  sockaddr_in6 own{};
  socklen_t size = sizeof own;
  const bool known = getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  return known ? ntohs(own.sin6_port) : 0;
}

}  // namespace dtrun
