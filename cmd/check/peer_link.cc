#include "cmd/check/peer_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/framed_channel.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr int kAnswerSeconds = 2;
constexpr std::uint32_t kLarge = 64 << 10, kMostAtOnce = 1u << 29;

// Nanoseconds that this thread ran, or was ready to and had no CPU.
std::int64_t cpu_nanos() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::int64_t ran = 0, waited = 0;
  return file >> ran >> waited ? ran + waited : 0;
}

// The socket's own time limits end these: they fail then.
bool receive_bytes(int fd, void* bytes, std::size_t size) {
  return recv(fd, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// `size` bytes that mean nothing, in pieces that `pass` sends or receives.
template <typename Pass>
bool pass_filler(std::uint32_t size, Pass pass) {
  thread_local std::vector<char> bytes(1 << 18, 'd');
  for (std::uint32_t part = 0; size > 0; size -= part) {
    part = std::min(size, static_cast<std::uint32_t>(bytes.size()));
    if (!pass(bytes.data(), part)) return false;
  }
  return true;
}

bool send_number(int fd, std::int64_t number) {
  return write_all(fd, {reinterpret_cast<const char*>(&number), sizeof number});
}

void make_blocking(int fd) {
  const int one = 1;
  fcntl(fd, F_SETFL, 0);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// The answer: nanoseconds of CPU time since the one before.
void serve(const Descriptor& peer) {
  const int fd = peer.get();
  make_blocking(fd);
  const auto receive = [fd](char* bytes, std::size_t part) { return receive_bytes(fd, bytes, part); };
  std::int64_t size = 0, used = cpu_nanos();
  while (receive_bytes(fd, &size, sizeof size) && size >= 0 && size <= kMostAtOnce) {
    if (!pass_filler(static_cast<std::uint32_t>(size), receive)) return;
    const std::int64_t before = std::exchange(used, cpu_nanos());
    if (!send_number(fd, used - before)) return;
  }
}

struct Exchange {
  bool done = false;  // in time
  double seconds = 0;
  double cpu_seconds = 0;  // of both ends
};

Exchange exchange(int fd, std::uint32_t bytes) {
  const std::int64_t before = cpu_nanos();
  const auto begin = SteadyClock::now();
  std::int64_t of_peer = 0;
  const auto send = [fd](char* at, std::size_t part) { return write_all(fd, {at, part}); };
  const bool done =
      send_number(fd, bytes) && pass_filler(bytes, send) && receive_bytes(fd, &of_peer, sizeof of_peer);
  if (!done) shutdown(fd, SHUT_RDWR);  // an answer that comes late would be taken for that of the next
  return {.done = done,
          .seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count(),
          .cpu_seconds = static_cast<double>(cpu_nanos() - before + of_peer) / 1e9};
}

void measure_round_trip(int fd, PathFacts* path) {
  constexpr int kCount = 10;
  constexpr auto kPause = 3ms;  // so that not all of them meet the same busy moment
  for (int i = 0; i < kCount; ++i) {
    const Exchange one = exchange(fd, 0);
    if (!one.done) return;
    const double milliseconds = 1000 * one.seconds;
    if (path->round_trip < 0 || milliseconds < path->round_trip) path->round_trip = milliseconds;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void serve_peers(ProbeListener listener) {
  std::thread([listener = std::move(listener)]() mutable {
    for (;;) {
      pollfd waits{.fd = listener.fd(), .events = POLLIN, .revents = 0};
      poll(&waits, 1, -1);
      Descriptor peer = listener.greet();
      if (peer.open()) std::thread([peer = std::move(peer)] { serve(peer); }).detach();
    }
  }).detach();
}

void try_messages(int connection, PathFacts* path) {
  make_blocking(connection);
  const timeval limit{.tv_sec = kAnswerSeconds, .tv_usec = 0};
  for (const int what : {SO_RCVTIMEO, SO_SNDTIMEO})
    setsockopt(connection, SOL_SOCKET, what, &limit, sizeof limit);
  measure_round_trip(connection, path);
  if (path->round_trip < 0) path->failure = "it accepts and stays silent";
  path->large_fails = path->failure.empty() && !exchange(connection, kLarge).done;
}

// Ever larger, until one takes long enough to tell: a slow link is not asked for more than it can do.
void measure_rate(int connection, PathFacts* path) {
  constexpr double kLongEnough = 0.1;
  // Held up by the processors, not the network. Ends that are take turns, with the kernel between them:
  // measured, 0.8 to 2 of the time together. Where the network holds them up it is 0.05 to 0.5.
  constexpr double kBusy = 0.6;
  measure_round_trip(connection, path);
  double rate = -1;
  bool of_cpu = false;
  for (std::uint32_t bytes = 128 << 10; bytes <= kMostAtOnce; bytes *= 2) {
    const Exchange one = exchange(connection, bytes);
    if (!one.done) break;
    rate = 8.0 * bytes / one.seconds / 1e6;
    of_cpu = one.cpu_seconds > kBusy * one.seconds;
    if (one.seconds >= kLongEnough) break;
  }
  if (rate < 0 || (rate < path->rate && !of_cpu)) return;
  path->rate = std::max(path->rate, rate);
  path->rate_of_cpu = of_cpu;
}

}  // namespace dtrun::cmd
