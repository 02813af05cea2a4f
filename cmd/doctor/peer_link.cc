#include "cmd/doctor/peer_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "cmd/doctor/core/matrix.h"
#include "proto/base/any_address.h"
#include "proto/base/ids.h"
#include "rendezvous/client/endpoint.h"

namespace dtrun::doctor {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kToConnect = 2000ms;
constexpr auto kToAnswer = 2000ms;
constexpr std::uint32_t kLarge = 64 << 10;
constexpr std::uint32_t kMostAtOnce = 1u << 30;

struct Ask {
  std::uint32_t bytes_there = 0, bytes_back = 0;
};
struct PeerAnswer {
  std::int64_t clock = 0;      // nanoseconds since 1970, at the listener
  std::int64_t cpu_nanos = 0;  // that the listener's thread ran or waited to run, since its start
};

std::int64_t clock_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// That this thread ran, or was ready to and had no CPU.
std::int64_t cpu_nanos() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::int64_t ran = 0, waited = 0;
  return file >> ran >> waited ? ran + waited : 0;
}

// A socket's own time limits end both: they fail with EAGAIN then.
bool send_bytes(int fd, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool receive_bytes(int fd, void* bytes, std::size_t size) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t n = recv(fd, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

// Bytes that mean nothing.
std::vector<char>& filler() {
  thread_local std::vector<char> bytes(1 << 20, 'd');
  return bytes;
}

bool send_filler(int fd, std::uint32_t size) {
  for (std::uint32_t left = size; left > 0;) {
    const auto part = std::min<std::uint32_t>(left, 1 << 20);
    if (!send_bytes(fd, filler().data(), part)) return false;
    left -= part;
  }
  return true;
}

bool receive_filler(int fd, std::uint32_t size) {
  for (std::uint32_t left = size; left > 0;) {
    const auto part = std::min<std::uint32_t>(left, 1 << 20);
    if (!receive_bytes(fd, filler().data(), part)) return false;
    left -= part;
  }
  return true;
}

void serve(const Descriptor& link, const std::string& nonce) {
  const int one = 1;
  setsockopt(link.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (!send_bytes(link.get(), nonce.data(), nonce.size())) return;
  for (Ask ask; receive_bytes(link.get(), &ask, sizeof ask);) {
    if (ask.bytes_there > kMostAtOnce || ask.bytes_back > kMostAtOnce ||
        !receive_filler(link.get(), ask.bytes_there))
      return;
    const PeerAnswer answer{.clock = clock_now(), .cpu_nanos = cpu_nanos()};
    if (!send_bytes(link.get(), &answer, sizeof answer) || !send_filler(link.get(), ask.bytes_back)) return;
  }
}

void limit_waits(int fd, std::chrono::milliseconds limit) {
  const timeval time{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  for (const int what : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(fd, SOL_SOCKET, what, &time, sizeof time);
}

struct Exchange {
  double seconds = 0;
  double cpu_seconds = 0;   // of the busier end
  double clock_offset = 0;  // seconds
};

// Nothing if it did not end in time.
std::optional<Exchange> exchange(int fd, const Ask& ask, std::int64_t* peer_cpu) {
  const std::int64_t own_before = cpu_nanos(), clock_before = clock_now();
  const auto begin = SteadyClock::now();
  PeerAnswer answer;
  const bool done = send_bytes(fd, &ask, sizeof ask) && send_filler(fd, ask.bytes_there) &&
                    receive_bytes(fd, &answer, sizeof answer) && receive_filler(fd, ask.bytes_back);
  if (!done) return std::nullopt;
  Exchange result{.seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count()};
  const std::int64_t middle = (clock_before + clock_now()) / 2;
  result.clock_offset = static_cast<double>(answer.clock - middle) / 1e9;
  const std::int64_t of_peer = answer.cpu_nanos - *peer_cpu, own = cpu_nanos() - own_before;
  *peer_cpu = answer.cpu_nanos;
  result.cpu_seconds = static_cast<double>(std::max(own, of_peer)) / 1e9;
  return result;
}

// Ever larger, until one takes long enough to tell: a slow link is not asked for more than it can do.
void measure_rate(int fd, bool back, PathFacts* path) {
  constexpr double kLongEnough = 0.1;
  // Held up by the processor, not the network, if either end was busy for most of the time.
  constexpr double kBusy = 0.5;
  std::int64_t peer_cpu = 0;
  if (!exchange(fd, {}, &peer_cpu)) return;
  for (std::uint32_t bytes = 128 << 10; bytes <= kMostAtOnce / 2; bytes *= 2) {
    const Ask ask = back ? Ask{.bytes_back = bytes} : Ask{.bytes_there = bytes};
    const auto one = exchange(fd, ask, &peer_cpu);
    if (!one) return;
    path->rate = 8.0 * bytes / one->seconds / 1e6;
    // The answer comes before the bytes that are asked for, so the time for them is in the next one.
    const auto behind = back ? exchange(fd, {}, &peer_cpu) : std::optional(Exchange{});
    if (!behind) return;
    path->rate_of_cpu = std::max(one->cpu_seconds, behind->cpu_seconds) > kBusy * one->seconds;
    if (one->seconds >= kLongEnough) return;
  }
}

std::string failure_text(int error) {
  if (error == ECONNREFUSED) return "refused";
  if (error == ETIMEDOUT) return "no answer in 2 s";
  return std::strerror(error);
}

}  // namespace

Result<PeerListener> PeerListener::open() {
  PeerListener listener;
  listener.nonce_ = random_id(16);
  Descriptor socket = bound_to_all(0);
  if (!socket.open() || listen(socket.get(), SOMAXCONN) != 0)
    return errno_status(kExitOsError, "no port to listen on", errno);
  listener.port_ = port_of(socket.get());
  std::thread([accepting = std::move(socket), nonce = listener.nonce_] {
    for (;;) {
      Descriptor link(accept4(accepting.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (link.open()) std::thread([link = std::move(link), nonce] { serve(link, nonce); }).detach();
    }
  }).detach();
  return listener;
}

PeerLink PeerLink::open(const Peer& peer) {
  PeerLink link;
  link.path_.address = peer.address;
  if (!link.connect_to(peer) || !link.greeted_by(peer)) return link;
  link.measure_round_trips();
  link.try_large();
  return link;
}

bool PeerLink::connect_to(const Peer& peer) {
  const rendezvous::Dialled dialled =
      rendezvous::dial(peer.address, peer.port, kToConnect, rendezvous::Interrupt());
  socket_.reset(dialled.fd);
  if (dialled.fd < 0) {
    path_.failure = dialled.unresolved ? "it has no address for others" : failure_text(dialled.error_number);
    return false;
  }
  fcntl(socket_.get(), F_SETFL, 0);  // blocking from here on
  limit_waits(socket_.get(), kToAnswer);
  return true;
}

bool PeerLink::greeted_by(const Peer& peer) {
  std::string nonce(peer.nonce.size(), '\0');
  const bool heard = receive_bytes(socket_.get(), nonce.data(), nonce.size());
  if (heard && nonce == peer.nonce) return true;
  path_.failure = heard ? "another host has this address" : "it accepts and stays silent";
  return false;
}

void PeerLink::try_large() {
  std::int64_t peer_cpu = 0;
  const bool there = exchange(socket_.get(), {.bytes_there = kLarge}, &peer_cpu).has_value();
  if (!there) path_.large = "64 kB never arrive";
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  path_.pmtu = static_cast<int>(info.tcpi_pmtu);
  path_.retransmits = static_cast<int>(info.tcpi_total_retrans);
}

void PeerLink::measure_round_trips() {
  constexpr int kCount = 30;
  constexpr auto kPause = 3ms;  // so that not all of them meet the same busy moment
  if (!path_.failure.empty()) return;
  std::vector<double> times;
  std::int64_t peer_cpu = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto one = exchange(socket_.get(), {}, &peer_cpu);
    if (!one) break;
    const double milliseconds = 1000 * one->seconds;
    if (path_.round_trip_least < 0 || milliseconds < path_.round_trip_least) {
      path_.round_trip_least = milliseconds;
      path_.clock_offset = one->clock_offset;  // the quickest tells it best
    }
    times.push_back(milliseconds);
    std::this_thread::sleep_for(kPause);
  }
  if (times.empty()) {
    path_.failure = "it answered once and no more";
    return;
  }
  path_.round_trip_p99 = *std::ranges::max_element(times);
  path_.round_trip = median_of(std::move(times));
}

void PeerLink::measure_rates(PathFacts* back) {
  if (!path_.failure.empty() || !path_.large.empty()) return;
  measure_rate(socket_.get(), false, &path_);
  measure_rate(socket_.get(), true, back);
}

}  // namespace dtrun::doctor
