// One thread waits (epoll) for the listeners, for connections that have not said hello, for those whose
// handshake gRPC does, and for words of other threads. The pure queue is told of all of it, and says whose
// turn it is and who goes.
#include "rendezvous/server/gate.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/any_address.h"
#include "proto/core/millis.h"
#include "rendezvous/core/admission/accept_queue.h"
#include "rendezvous/core/admission/refused.h"
#include "rendezvous/server/hello.h"
#include "rendezvous/server/origin.h"
#include "rendezvous/server/strand.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

// Marks in epoll's data that are no connection's id.
constexpr std::uint64_t kWake = 0, kFirstListener = 1, kFirstConnection = 100;
// The pause in accepting when this process may not open another file, or when the queue is full.
constexpr Millis kNoFilesPause = 100, kFullPause = 10;
// Accepted in a row before waiting connections are read: a hello that came with one is read before it is
// closed.
constexpr int kBatch = 16;
// At most so much of a connection's first bytes is examined. A member's hello has some 300 bytes.
constexpr std::size_t kLookedAt = 1024;

std::size_t quarter_of_files() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : 0;
}

int listen_on(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted sockets inherit it
  if (address.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// Every address that the text means: "localhost" has two, and all addresses are "::" if there is IPv6.
std::vector<int> listen_on_all(const std::string& address, int port) {
  const bool all = address == "0.0.0.0" || address == "::";
  std::vector<int> listeners;
  for (const std::string& numeric : all ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{address}) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    if (getaddrinfo(numeric.c_str(), nullptr, &hints, &found) != 0) continue;
    for (addrinfo* one = found; one != nullptr; one = one->ai_next) {
      const int same = listeners.empty() ? port : port_of(listeners.front());
      // The port lies at the same place in both kinds of address.
      reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port = htons(static_cast<in_port_t>(same));
      const int fd = listen_on(*one);
      if (fd >= 0) listeners.push_back(fd);
    }
    freeaddrinfo(found);
    if (all && !listeners.empty()) break;
  }
  return listeners;
}

class EpollGate final : public Gate {
 public:
  EpollGate(std::vector<int> listeners, std::size_t files, IsMember is_member, TurnedAway turned_away)
      : listeners_(std::move(listeners)),
        port_(port_of(listeners_.front())),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        queue_(AcceptQueue::Limits::within(files)),
        is_member_(std::move(is_member)),
        turned_away_(std::move(turned_away)) {
    watch(wake_, kWake, EPOLLIN);
  }

  ~EpollGate() override {
    close();
    ::close(wake_);
    ::close(epoll_);
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    eventfd_write(wake_, 1);
    if (thread_.joinable()) thread_.join();
    for (const auto& [id, connection] : connections_) ::close(connection.fd);
    for (const int fd : listeners_) ::close(fd);
    connections_.clear();
    listeners_.clear();
  }

  void start(HandOver hand_over) override {
    hand_over_ = std::move(hand_over);
    accept_again();
    thread_ = std::thread([this] { run(); });
  }

  int port() const override { return port_; }

  void came_in(const std::string& peer) override {
    const std::lock_guard lock(mutex_);
    came_in_.push_back(peer);
    if (came_in_.size() == 1) eventfd_write(wake_, 1);
  }

 private:
  struct AcceptedSocket {
    int fd = -1;  // once handed over: a second descriptor of it, which shows its end
    Origin peer;
  };

  void run();
  void take(const std::string& peer);
  void hang_up_on(std::uint64_t id);
  void tell_of(const Origin& peer);
  bool take_callers();
  void accept_some(int listener);
  void accept_again();
  void pause_accepting(Millis time);
  void look_at(std::uint64_t id, std::uint32_t events);
  void hand_over_next();
  void let_go(std::uint64_t id);
  void watch(int fd, std::uint64_t mark, std::uint32_t events) const {
    epoll_event event{.events = events, .data = {.u64 = mark}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  std::vector<int> listeners_;
  const int port_, epoll_, wake_;
  HandOver hand_over_;
  std::thread thread_;

  std::mutex mutex_;  // guards the next two
  std::vector<std::string> came_in_;
  bool ending_ = false;

  // The thread's.
  AcceptQueue queue_;
  std::map<std::uint64_t, AcceptedSocket> connections_;
  std::map<std::string, std::uint64_t> handed_over_;  // by the peer's name
  const IsMember is_member_;
  const TurnedAway turned_away_;
  Refused refused_;
  std::uint64_t next_id_ = kFirstConnection;
  Millis accept_at_ = kNever;  // when to go on, after a pause
};

void EpollGate::run() {
  std::array<epoll_event, 256> events{};
  while (take_callers()) {
    const Millis now = steady_now();
    for (const std::uint64_t id : queue_.take_expired(now)) let_go(id);
    for (auto known = handed_over_.begin(); known != handed_over_.end();) {
      const std::uint64_t id = (known++)->second;
      // Its time to prove is over: it has shown its certificate, but makes no call, since gRPC has closed all
      // others by now.
      if (!queue_.is_handshaking(id)) hang_up_on(id);
    }
    hand_over_next();
    if (now >= accept_at_) accept_again();
    const Millis deadline = std::min(queue_.next_deadline(now), accept_at_);
    const int timeout = deadline == kNever ? -1 : static_cast<int>(std::max<Millis>(0, deadline - now));
    const int ready = epoll_wait(epoll_, events.data(), events.size(), timeout);
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 >= kFirstConnection)
        look_at(event.data.u64, event.events);
      else if (event.data.u64 >= kFirstListener)
        accept_some(listeners_[event.data.u64 - kFirstListener]);
    }
  }
}

// False at the end.
bool EpollGate::take_callers() {
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
  std::vector<std::string> peers;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return false;
    peers.swap(came_in_);
  }
  for (const std::string& peer : peers) take(peer);
  return true;
}

void EpollGate::take(const std::string& peer) {
  const auto known = handed_over_.find(peer);
  if (known == handed_over_.end()) return;
  queue_.proven(known->second);
  refused_.came_in(address_of_peer(peer));
  let_go(known->second);
}

// Its other descriptor is gRPC's, which sees the end: at once, and not behind all calls that wait to be read.
void EpollGate::hang_up_on(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found != connections_.end()) {
    shutdown(found->second.fd, SHUT_RDWR);
    while (recv(found->second.fd, nullptr, 1 << 20, MSG_DONTWAIT | MSG_TRUNC) > 0) {
    }
  }
  let_go(id);
}

void EpollGate::accept_some(int listener) {
  for (int i = 0; i < kBatch; ++i) {
    if (queue_.is_full(steady_now())) return pause_accepting(kFullPause);
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_accepting(kNoFilesPause);
      return;
    }
    const std::uint64_t id = next_id_++;
    const AcceptedSocket& connection =
        connections_.emplace(id, AcceptedSocket{.fd = fd, .peer = origin_of(from)}).first->second;
    if (const auto goes = queue_.arrived(id, connection.peer.source, steady_now())) let_go(*goes);
    watch(fd, id, EPOLLIN | EPOLLRDHUP | EPOLLET);
  }
}

void EpollGate::accept_again() {
  accept_at_ = kNever;
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i], kFirstListener + i, EPOLLIN);
}

void EpollGate::pause_accepting(Millis time) {
  accept_at_ = steady_now() + time;
  for (const int fd : listeners_) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void EpollGate::look_at(std::uint64_t id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const int fd = found->second.fd;
  if (queue_.is_handshaking(id)) {
    if ((events & (EPOLLHUP | EPOLLERR)) == 0) return;
    tell_of(found->second.peer);
    queue_.failed(id, steady_now());
    return let_go(id);
  }
  std::array<unsigned char, kLookedAt> first{};
  int available = 0;
  ioctl(fd, FIONREAD, &available);
  const ssize_t peeked = available > 0 ? recv(fd, first.data(), first.size(), MSG_PEEK) : 0;
  const auto got = static_cast<std::size_t>(std::max<ssize_t>(0, peeked));
  const Greeting greeting =
      greeting_of(first.data(), got < kGreetingBytes ? static_cast<int>(got) : available);
  const bool gone = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (gone || greeting == Greeting::kOther) {
    queue_.left(id);
    return let_go(id);
  }
  if (greeting != Greeting::kHello) return;
  const auto name = server_name_in({first.data(), got});
  queue_.greeted(id, name && is_member_ && is_member_(*name), steady_now());
}

void EpollGate::tell_of(const Origin& peer) {
  const std::string address = address_of_peer(peer.name);
  if (turned_away_ && refused_.failed(address, steady_now())) turned_away_(address);
}

void EpollGate::hand_over_next() {
  for (const std::uint64_t id : queue_.take_next(steady_now())) {
    AcceptedSocket& connection = connections_.at(id);
    const int fd = connection.fd;
    connection.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    if (connection.fd < 0) {
      queue_.failed(id, steady_now());
      connections_.erase(id);
      ::close(fd);
      continue;
    }
    watch(connection.fd, id, EPOLLET);
    handed_over_[connection.peer.name] = id;
    hand_over_(fd);
  }
}

void EpollGate::let_go(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  ::close(found->second.fd);
  const auto known = handed_over_.find(found->second.peer.name);
  if (known != handed_over_.end() && known->second == id) handed_over_.erase(known);
  connections_.erase(found);
}

}  // namespace

std::unique_ptr<Gate> Gate::open(const std::string& address, int port, std::optional<std::size_t> files,
                                 IsMember is_member, TurnedAway turned_away) {
  std::vector<int> listeners = listen_on_all(address, port);
  if (listeners.empty()) return nullptr;
  return std::make_unique<EpollGate>(std::move(listeners), files.value_or(quarter_of_files()),
                                     std::move(is_member), std::move(turned_away));
}

}  // namespace dtrun::rendezvous
