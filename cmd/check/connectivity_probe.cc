#include "cmd/check/connectivity_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "proto/base/any_address.h"
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

Descriptor listening_on(int port) {
  Descriptor socket = bound_to_all(port);
  fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return listen(socket.get(), SOMAXCONN) == 0 ? std::move(socket) : Descriptor();
}

// One address that is being tried.
class AddressAttempt {
 public:
  AddressAttempt(const std::string& address, int port, const std::string& nonce)
      : address_(address), nonce_(nonce) {
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
  const std::string& address() const { return address_; }
  Descriptor connection() { return std::move(socket_); }
  // Ours on the way there.
  std::string from() const {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = {};
    auto* const generic = reinterpret_cast<sockaddr*>(&own);
    const bool known = getsockname(socket_.get(), generic, &size) == 0 &&
                       getnameinfo(generic, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
    return known ? text : "";
  }
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
  Descriptor socket_;
  bool connected_ = false, reached_ = false;
  std::string heard_, why_not_;
};

// One place that is sought. An earlier address is a better one.
class AddressSearch {
 public:
  AddressSearch(const ProbeTarget& place, Clock::time_point deadline) : deadline_(deadline) {
    for (const std::string& address : place.addresses)
      attempts_.emplace_back(address, place.port, place.nonce);
  }

  Clock::time_point deadline() const { return deadline_; }
  bool over(Clock::time_point now) const {
    const auto open =
        std::ranges::find_if(attempts_, [](const AddressAttempt& a) { return a.under_way() || a.reached(); });
    return open == attempts_.end() || open->reached() || now >= deadline_;
  }
  void add_waits(std::vector<pollfd>* entries) const {
    for (const AddressAttempt& attempt : attempts_) entries->push_back(attempt.waits());
  }
  // Takes as many entries as it has added; returns the next.
  const pollfd* go_on(const pollfd* entry) {
    for (AddressAttempt& attempt : attempts_)
      if (const pollfd& one = *entry++; one.fd >= 0 && one.revents != 0) attempt.go_on();
    const bool reached = std::ranges::any_of(attempts_, &AddressAttempt::reached);
    if (reached && !std::exchange(reached_one_, true))
      deadline_ = std::min(deadline_, Clock::now() + kForABetterOne);
    return entry;
  }
  // Of the address that is its result; not open: none.
  Descriptor connection() {
    const auto reached = std::ranges::find_if(attempts_, &AddressAttempt::reached);
    return reached == attempts_.end() ? Descriptor() : reached->connection();
  }
  ProbeResult result() const {
    ProbeResult result;
    for (const AddressAttempt& attempt : attempts_) {
      if (!attempt.reached()) result.why_not.push_back(attempt.why_not());
      if (!attempt.reached() || !result.address.empty()) continue;
      result.address = attempt.address();
      result.from = attempt.from();
    }
    return result;
  }

 private:
  std::vector<AddressAttempt> attempts_;
  Clock::time_point deadline_;
  bool reached_one_ = false;
};

}  // namespace

Result<ProbeListener> ProbeListener::open() {
  ProbeListener place;
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

Descriptor ProbeListener::greet() {
  Descriptor visitor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  [[maybe_unused]] const ssize_t n = send(visitor.get(), nonce_.data(), nonce_.size(), MSG_NOSIGNAL);
  return visitor;
}

std::vector<ProbeResult> probe_all(const std::vector<ProbeTarget>& places, std::chrono::milliseconds timeout,
                                   ProbeListener* own, std::vector<Descriptor>* connections) {
  std::vector<AddressSearch> searches;
  for (const ProbeTarget& place : places) searches.emplace_back(place, Clock::now() + timeout);
  for (;;) {
    const Clock::time_point now = Clock::now();
    std::vector<pollfd> entries{{.fd = own != nullptr ? own->fd() : -1, .events = POLLIN, .revents = 0}};
    Clock::time_point wake = Clock::time_point::max();
    for (const AddressSearch& search : searches) {
      if (search.over(now)) continue;
      wake = std::min(wake, search.deadline());
      search.add_waits(&entries);
    }
    if (wake == Clock::time_point::max()) break;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(wake - now);
    if (poll(entries.data(), entries.size(), static_cast<int>(left.count()) + 1) < 0 && errno != EINTR) break;
    if (own != nullptr && entries[0].revents != 0) own->greet();
    const pollfd* entry = entries.data() + 1;
    for (AddressSearch& search : searches)
      if (!search.over(now)) entry = search.go_on(entry);
  }
  std::vector<ProbeResult> results;
  for (AddressSearch& search : searches) {
    results.push_back(search.result());
    if (connections != nullptr) connections->push_back(search.connection());
  }
  return results;
}

}  // namespace dtrun::cmd
