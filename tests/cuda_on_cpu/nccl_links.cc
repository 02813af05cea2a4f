#include "tests/cuda_on_cpu/nccl_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>

namespace cuda_on_cpu {
namespace {

constexpr int kPollMs = 2;

// The first message of a rank on each connection.
struct Hello {
  int rank = 0, control = 0;
  char gpu[80] = "";
};

// Calls bind or connect with the name of the socket at which a rank waits for higher ones.
Socket socket_at(const ncclUniqueId& id, int rank, int (*call)(int, const sockaddr*, socklen_t)) {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length =
      std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "dtrun-nccl-%s-%d", id.internal, rank);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const bool done = call(socket.fd(), reinterpret_cast<const sockaddr*>(&name), bytes) == 0;
  return done ? std::move(socket) : Socket();
}

// Whether something happened before `stop` said so.
bool wait_for_event(const Socket& socket, short events, const Stop& stop) {
  pollfd one{socket.fd(), events, 0};
  while (!stop()) {
    if (poll(&one, 1, kPollMs) > 0) return true;
  }
  return false;
}

Socket accept_at(const Socket& listener, const Stop& stop) {
  if (!wait_for_event(listener, POLLIN, stop)) return Socket();
  return Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Socket connect_to(const ncclUniqueId& id, int rank, const Stop& stop) {
  Socket socket;
  while ((socket = socket_at(id, rank, connect)).fd() < 0 && !stop())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return socket;
}

// Moves all of `bytes` by `some`, which is told how many are done.
template <typename Some>
bool move_all(const Socket& socket, std::size_t bytes, short event, const Stop& stop, const Some& some) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = some(done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for_event(socket, event, stop)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool receive_all(const Socket& from, void* data, std::size_t bytes, const Stop& stop) {
  return move_all(from, bytes, POLLIN, stop, [&](std::size_t done) {
    return recv(from.fd(), static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
  });
}

bool send_all(const Socket& to, const void* data, std::size_t bytes, const Stop& stop) {
  return move_all(to, bytes, POLLOUT, stop, [&](std::size_t done) {
    const auto* const from = static_cast<const char*>(data) + done;
    return send(to.fd(), from, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

// Both connections to each other rank: this one goes to lower ones, and higher ones come.
Met meet(const ncclUniqueId& id, int rank, int size, const std::string& gpu, const Stop& stop) {
  const Socket listener = socket_at(id, rank, bind);
  if (listener.fd() < 0 || listen(listener.fd(), 2 * size) != 0)
    return {ncclInternalError, "rank " + std::to_string(rank) + " is there already"};
  Met met;
  met.links.resize(static_cast<std::size_t>(size));
  for (int i = 0; i < 2 * (size - 1); ++i) {
    const bool goes = i < 2 * rank;
    Socket end = goes ? connect_to(id, i / 2, stop) : accept_at(listener, stop);
    Hello mine{rank, i % 2}, theirs;
    std::snprintf(mine.gpu, sizeof mine.gpu, "%s", gpu.c_str());
    if (!send_all(end, &mine, sizeof mine, stop) || !receive_all(end, &theirs, sizeof theirs, stop))
      return {stop() ? ncclInternalError : ncclRemoteError, stop() ? "aborted" : "a rank has come and gone"};
    if (theirs.gpu == gpu)
      met = {ncclInvalidUsage,
             "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                 std::to_string(theirs.rank) + " both on " + gpu,
             std::move(met.links)};
    Link& link = met.links[static_cast<std::size_t>(theirs.rank)];
    ((goes ? mine : theirs).control == 0 ? link.data : link.control) = std::move(end);
  }
  return met;
}

}  // namespace cuda_on_cpu
