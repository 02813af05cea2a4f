#include "agent/process/master_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace dtrun::agent {
namespace {

// A socket bound to `port` on every address of `family`, open; or errno of what failed.
Descriptor bound(int family, int port) {
  Descriptor held(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.open()) return {};
  // If both sockets have this option, Linux lets another one listen on a port that this one only holds.
  const int on = 1, off = 0;
  setsockopt(held.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage any{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(held.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    reinterpret_cast<sockaddr_in6*>(&any)->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(static_cast<std::uint16_t>(port));
  }
  any.ss_family = static_cast<sa_family_t>(family);
  if (bind(held.get(), reinterpret_cast<sockaddr*>(&any), size) == 0) return held;
  const int error = errno;
  held.reset();
  errno = error;
  return {};
}

int port_of(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

}  // namespace

Result<HeldPort> hold_port(int port) {
  HeldPort held;
  held.socket = bound(AF_INET6, port);  // holds the IPv4 port too
  if (!held.socket.open() && errno != EADDRINUSE) held.socket = bound(AF_INET, port);
  if (!held.socket.open()) {
    const std::string text = port == 0 ? "cannot hold a port for MASTER_PORT: "
                                       : "cannot hold MASTER_PORT " + std::to_string(port) + ": ";
    return Status(kExitUnavailable, text + std::strerror(errno) +
                                        (port == 0 ? "" : " (without --master_port a free one is taken)"));
  }
  held.port = port_of(held.socket);
  return held;
}

}  // namespace dtrun::agent
