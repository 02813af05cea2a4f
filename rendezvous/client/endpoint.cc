#include "rendezvous/client/endpoint.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

// True if `fd` became ready in time; false at the deadline, or when interrupted.
bool wait_for(int fd, short events, Clock::time_point deadline, const Interrupt& interrupt) {
  std::array<pollfd, 2> polled{{{fd, events, 0}, {interrupt.fd(), POLLIN, 0}}};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::max<long>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && polled[1].revents == 0;
  }
}

std::string numeric_address(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

std::string local_address_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(fd, generic, &size) != 0) return "";
  return numeric_address(generic, size);
}

// 0, or the errno of the attempt.
int finish_connect(int fd, const addrinfo& address, Clock::time_point deadline, const Interrupt& interrupt) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(fd, POLLOUT, deadline, interrupt)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// TCP connects a port of this host to itself if the kernel picks it as the client's port: no one listens
// there.
bool connected_to_itself(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size);
  getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size);
  return here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

Dialled connect_to(const addrinfo& address, Clock::time_point deadline, const Interrupt& interrupt) {
  Dialled dialled;
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = fd < 0 ? errno : finish_connect(fd, address, deadline, interrupt);
  if (error == 0 && connected_to_itself(fd)) error = ECONNREFUSED;
  if (error != 0) {
    if (fd >= 0) close(fd);
    dialled.error = std::strerror(error);
    dialled.refused = error == ECONNREFUSED;
    return dialled;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  dialled.fd = fd;
  dialled.local_address = local_address_of(fd);
  dialled.peer_address = numeric_address(address.ai_addr, address.ai_addrlen);
  return dialled;
}

// True if the process that listens there is this user's or root's.
bool ours_or_roots(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

// Never waits: the kernel alone connects.
Dialled dial_unix(const std::string& path) {
  Dialled dialled;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    dialled.error = std::strerror(ENAMETOOLONG);
    return dialled;
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool connected =
      fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!connected) dialled.error = std::strerror(errno);
  if (connected && !ours_or_roots(fd)) dialled.error = "another user's process listens there";
  if (!dialled.error.empty()) {
    if (fd >= 0) close(fd);
    return dialled;
  }
  dialled.fd = fd;
  dialled.local_address = "127.0.0.1";
  dialled.peer_address = unix_endpoint(path);
  return dialled;
}

bool send_all(int fd, std::string_view bytes, Clock::time_point deadline, const Interrupt& interrupt) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline, interrupt))
      return false;
  }
  return true;
}

std::string receive(int fd, std::size_t size, Clock::time_point deadline, const Interrupt& interrupt) {
  std::string bytes;
  while (bytes.size() < size && wait_for(fd, POLLIN, deadline, interrupt)) {
    char buffer[64];
    const ssize_t got = recv(fd, buffer, std::min(sizeof buffer, size - bytes.size()), 0);
    if (got <= 0) break;
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  return bytes;
}

constexpr std::size_t kFrameHeader = 9;  // HTTP/2: length (3), type, flags, stream (4)

bool is_settings(const std::string& header) {
  static constexpr char kSettings = 4;
  return header.size() == kFrameHeader && header[0] == 0 && header[3] == kSettings &&
         header.substr(5) == std::string(4, '\0');
}

}  // namespace

Interrupt::Interrupt() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) std::abort();
}
Interrupt::~Interrupt() { close(fd_); }
void Interrupt::raise() { eventfd_write(fd_, 1); }

Addresses look_up(const std::string& host, int port) {
  const std::string service = std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int fault = getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (fault != 0 && host == "localhost") fault = getaddrinfo(nullptr, service.c_str(), &hints, &found);
  Addresses addresses;
  if (fault == 0)
    addresses.list.reset(found);
  else
    addresses.error = fault == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(fault);
  return addresses;
}

Dialled dial(const std::string& host, int port, std::chrono::milliseconds timeout,
             const Interrupt& interrupt) {
  if (const auto path = unix_path(host)) return dial_unix(*path);
  const Addresses found = look_up(host, port);
  // The time to connect counts from here: a name service whose first server is down takes just as long to
  // resolve.
  const auto deadline = Clock::now() + timeout;
  Dialled dialled;
  if (!found.list) {
    dialled.error = found.error;
    dialled.unresolved = true;
    return dialled;
  }
  long left = 0;
  for (const addrinfo* address = found.list.get(); address != nullptr; address = address->ai_next) ++left;
  for (const addrinfo* address = found.list.get(); address != nullptr && dialled.fd < 0;
       address = address->ai_next) {
    // One that never answers, as IPv6 behind some firewalls, leaves the others their share of the time.
    const auto now = Clock::now();
    const bool refused = dialled.refused;
    dialled = connect_to(*address, now + (deadline - now) / left--, interrupt);
    dialled.refused = dialled.fd < 0 && (dialled.refused || refused);
  }
  return dialled;
}

ProbeAnswer probe(const std::string& host, int port, std::chrono::milliseconds timeout,
                  const Interrupt& interrupt) {
  static constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 24 + 9);
  const Dialled dialled = dial(host, port, timeout, interrupt);
  if (dialled.fd < 0) return ProbeAnswer::kGone;
  const auto deadline = Clock::now() + timeout;
  std::string header;
  if (send_all(dialled.fd, kPreface, deadline, interrupt))
    header = receive(dialled.fd, kFrameHeader, deadline, interrupt);
  const bool silent = header.empty() && Clock::now() >= deadline;
  close(dialled.fd);
  if (header.empty()) return silent ? ProbeAnswer::kSilent : ProbeAnswer::kGone;
  return is_settings(header) ? ProbeAnswer::kHttp2 : ProbeAnswer::kOther;
}

}  // namespace dtrun::rendezvous
