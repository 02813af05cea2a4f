// TCP ports of this host, for tests that must name one before it has a listener.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <random>
#include <set>

namespace dtrun::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// Sockets that the caller closes; -1 where that fails. Port 0: any one.
inline int connected_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}
inline int bound_to(int port, in_addr_t host = INADDR_LOOPBACK) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(port);
  address.sin_addr.s_addr = htonl(host);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

inline int port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// One that was free a moment ago on every address of this host, and the next one too; another one each time,
// on any thread. Below the ports that the kernel gives to connections: such a port may become another's at
// any time, and stays taken for a minute after a connection from it.
inline int free_port() {
  static std::mutex mutex;
  static std::mt19937 random{std::random_device{}()};
  static std::set<int> given;
  const std::lock_guard lock(mutex);
  const auto is_free = [](int port) {
    const int fd = bound_to(port, INADDR_ANY);
    if (fd >= 0) close(fd);
    return fd >= 0;
  };
  for (;;) {
    const int port = std::uniform_int_distribution(15000, 32000)(random);
    if (given.contains(port - 1) || given.contains(port + 1) || !is_free(port) || !is_free(port + 1))
      continue;
    if (given.insert(port).second) return port;
  }
}

// Whether the port has a listener.
inline bool is_listening(int port) {
  const int fd = connected_to(port);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace dtrun::test
