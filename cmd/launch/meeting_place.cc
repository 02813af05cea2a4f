#include "cmd/launch/meeting_place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "proto/base/ids.h"
#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLowestPort = 20000;
constexpr int kTries = 200;
constexpr auto kForABetterOne = std::chrono::seconds(1);

// The first port that the kernel gives to outgoing connections.
int first_outgoing_port() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first > kLowestPort + kTries ? first : 32768;
}

// Else the coordinator could not listen there at once: those who were greeted leave connections behind.
void let_port_be_reused(const agent::Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

agent::Descriptor listening_on(int port) {
  agent::Descriptor both(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  let_port_be_reused(both);
  const int off = 0;
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  if (both.open()) {
    setsockopt(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const bool bound = bind(both.get(), reinterpret_cast<sockaddr*>(&any6), sizeof any6) == 0;
    if (bound && listen(both.get(), SOMAXCONN) == 0) return both;
    if (errno == EADDRINUSE) return {};
  }
  agent::Descriptor one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));  // no IPv6 here
  let_port_be_reused(one);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = bind(one.get(), reinterpret_cast<sockaddr*>(&any4), sizeof any4) == 0;
  return bound && listen(one.get(), SOMAXCONN) == 0 ? std::move(one) : agent::Descriptor();
}

// One address that is being tried.
class Attempt {
 public:
  Attempt(const std::string& address, int port, const std::string& nonce) : address_(address), nonce_(nonce) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
      give_up("no numeric address");
      return;
    }
    socket_.reset(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int result = connect(socket_.get(), found->ai_addr, found->ai_addrlen);
    const int error = errno;
    freeaddrinfo(found);
    if (result != 0 && error != EINPROGRESS) give_up(std::strerror(error));
  }

  bool under_way() const { return !reached_ && why_not_.empty(); }
  bool reached() const { return reached_; }
  pollfd waits() const {
    return {.fd = under_way() ? socket_.get() : -1,
            .events = static_cast<short>(connected_ ? POLLIN : POLLOUT),
            .revents = 0};
  }
  std::string why_not() const {
    const bool never_answered = why_not_.empty() && !connected_;
    return address_ + ": " +
           (never_answered     ? "no answer, a filter or another network"
            : why_not_.empty() ? "silent"
                               : why_not_);
  }

  void go_on() {
    if (!connected_) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return give_up(error == ECONNREFUSED ? "refused" : std::strerror(error));
      connected_ = true;
      return;
    }
    char bytes[256];
    const ssize_t n = read(socket_.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return give_up("another host, or another program, has this address");
    heard_.append(bytes, static_cast<std::size_t>(n));
    if (heard_.size() < nonce_.size()) return;
    if (heard_ != nonce_) return give_up("another host, or another program, has this address");
    reached_ = true;
  }

 private:
  void give_up(const std::string& why) {
    why_not_ = why;
    socket_.reset();
  }

  std::string address_, nonce_;
  agent::Descriptor socket_;
  bool connected_ = false, reached_ = false;
  std::string heard_, why_not_;
};

}  // namespace

Result<MeetingPlace> MeetingPlace::open() {
  MeetingPlace place;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kLowestPort, first_outgoing_port() - 1);
  for (int i = 0; i < kTries && !place.socket_.open(); ++i) {
    place.port_ = ports(random);
    place.socket_ = listening_on(place.port_);
  }
  if (!place.socket_.open())
    return Status(kExitUnavailable,
                  "no free TCP port to meet on, from " + std::to_string(kLowestPort) + " on");
  place.nonce_ = random_id(16);
  return place;
}

void MeetingPlace::greet() {
  for (;;) {
    const agent::Descriptor visitor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!visitor.open()) return;
    [[maybe_unused]] const ssize_t n =
        send(visitor.get(), nonce_.data(), nonce_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Sight look_for(const std::vector<std::string>& addresses, int port, const std::string& nonce,
               std::chrono::milliseconds timeout) {
  std::vector<Attempt> attempts;
  for (const std::string& address : addresses) attempts.emplace_back(address, port, nonce);
  auto deadline = Clock::now() + timeout;
  bool reached_one = false;
  for (;;) {
    // An earlier address is a better one.
    const auto open =
        std::ranges::find_if(attempts, [](const Attempt& a) { return a.under_way() || a.reached(); });
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (open == attempts.end() || open->reached() || left.count() <= 0) break;
    std::vector<pollfd> entries;
    for (const Attempt& attempt : attempts) entries.push_back(attempt.waits());
    if (poll(entries.data(), entries.size(), static_cast<int>(left.count()) + 1) < 0 && errno != EINTR) break;
    for (std::size_t i = 0; i < attempts.size(); ++i)
      if (entries[i].fd >= 0 && entries[i].revents != 0) attempts[i].go_on();
    const bool reached = std::ranges::any_of(attempts, &Attempt::reached);
    if (reached && !std::exchange(reached_one, true))
      deadline = std::min(deadline, Clock::now() + kForABetterOne);
  }
  Sight sight;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (!attempts[i].reached()) sight.why_not.push_back(attempts[i].why_not());
    if (attempts[i].reached() && sight.address.empty()) sight.address = addresses[i];
  }
  return sight;
}

}  // namespace dtrun::cmd
