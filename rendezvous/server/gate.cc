// One thread waits (epoll) for the listeners, for connections that have not said hello, for those whose
// handshake gRPC does, and for the first call of each. The pure queue is told of all of it, and says whose
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
#include <utility>

#include "proto/base/any_address.h"
#include "rendezvous/server/hello.h"
#include "rendezvous/server/peer_name.h"
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
// Of a `dtrun store`; an agent has as many (agent/system/resource_limits.cc).
constexpr std::size_t kMostFiles = 512;
// A handshake that ends so soon after the peer's last bytes failed at what they, or the answer, said. One
// that ends later was given up, as on a loaded machine: nothing is known of its key.
constexpr Millis kJustNow = 2000;

std::size_t quarter_of_files() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min<std::size_t>(limit.rlim_cur / 4, kMostFiles) : 0;
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

bool spoke_just_now(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_last_data_recv < kJustNow;
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

}  // namespace

std::unique_ptr<Gate> Gate::open(const std::string& address, int port, std::optional<std::size_t> files,
                                 const Times& times, TurnedAway turned_away) {
  std::vector<int> listeners = listen_on_all(address, port);
  if (listeners.empty()) return nullptr;
  const auto limits = AcceptQueue::Limits::within(files.value_or(quarter_of_files()), times);
  return std::unique_ptr<Gate>(new Gate(std::move(listeners), limits, std::move(turned_away)));
}

Gate::Gate(std::vector<int> listeners, const AcceptQueue::Limits& limits, TurnedAway turned_away)
    : listeners_(std::move(listeners)),
      port_(port_of(listeners_.front())),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      queue_(limits),
      turned_away_(std::move(turned_away)),
      next_id_(kFirstConnection) {
  watch(wake_, kWake, EPOLLIN);
}

Gate::~Gate() {
  close();
  ::close(wake_);
  ::close(epoll_);
}

void Gate::close() {
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

void Gate::start(HandOver hand_over) {
  hand_over_ = std::move(hand_over);
  accept_again();
  thread_ = std::thread([this] { run(); });
}

void Gate::came_in(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  came_in_.push_back(peer);
  if (came_in_.size() == 1) eventfd_write(wake_, 1);
}

void Gate::watch(int fd, std::uint64_t mark, std::uint32_t events) const {
  epoll_event event{.events = events, .data = {.u64 = mark}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void Gate::run() {
  std::array<epoll_event, 256> events{};
  while (take_callers()) {
    take_turn();
    const Millis now = steady_now();
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
bool Gate::take_callers() {
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
  std::vector<std::string> peers;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return false;
    peers.swap(came_in_);
  }
  for (const std::string& peer : peers) {
    const auto known = handed_over_.find(peer);
    if (known == handed_over_.end()) continue;
    queue_.proven(known->second);
    refused_.came_in(address_of_peer(peer));
    let_go(known->second);
  }
  return true;
}

void Gate::take_turn() {
  const AcceptQueue::Turn turn = queue_.take_turn(steady_now());
  for (const std::uint64_t id : turn.close) hang_up_on(id);
  for (const std::uint64_t id : turn.begin) hand_over(id);
}

void Gate::accept_some(int listener) {
  for (int i = 0; i < kBatch; ++i) {
    if (queue_.is_full()) return pause_accepting(kFullPause);
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_accepting(kNoFilesPause);
      return;
    }
    const std::uint64_t id = next_id_++;
    connections_.emplace(id, AcceptedSocket{.fd = fd, .peer = peer_name(from)});
    if (const auto goes = queue_.arrived(id, steady_now())) let_go(*goes);
    watch(fd, id, EPOLLIN | EPOLLRDHUP | EPOLLET);
  }
}

void Gate::accept_again() {
  accept_at_ = kNever;
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i], kFirstListener + i, EPOLLIN);
}

void Gate::pause_accepting(Millis time) {
  accept_at_ = steady_now() + time;
  for (const int fd : listeners_) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void Gate::note_refused(const std::string& peer) {
  const std::string address = address_of_peer(peer);
  if (turned_away_ && refused_.failed(address, steady_now())) turned_away_(address);
}

void Gate::look_at(std::uint64_t id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto& [fd, peer] = found->second;
  if (queue_.is_handshaking(id)) {
    if ((events & (EPOLLHUP | EPOLLERR)) == 0) return;
    if (spoke_just_now(fd)) note_refused(peer);
    queue_.failed(id);
    return let_go(id);
  }
  std::array<unsigned char, kGreetingBytes> first{};
  int available = 0;
  ioctl(fd, FIONREAD, &available);
  if (available > 0 && recv(fd, first.data(), first.size(), MSG_PEEK) < 0) available = 0;
  const Greeting greeting = greeting_of(first.data(), available);
  const bool gone = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (greeting == Greeting::kPlain) note_refused(peer);
  if (gone || greeting == Greeting::kPlain || greeting == Greeting::kOther) {
    queue_.left(id);
    return let_go(id);
  }
  if (greeting == Greeting::kHello) queue_.greeted(id);
}

void Gate::hand_over(std::uint64_t id) {
  AcceptedSocket& connection = connections_.at(id);
  const int fd = connection.fd;
  connection.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  if (connection.fd < 0) {
    queue_.failed(id);
    connections_.erase(id);
    ::close(fd);
    return;
  }
  watch(connection.fd, id, EPOLLET);
  handed_over_[connection.peer] = id;
  hand_over_(fd);
}

// Once it was handed over, gRPC sees the end on its own descriptor.
void Gate::hang_up_on(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found != connections_.end()) shutdown(found->second.fd, SHUT_RDWR);
  let_go(id);
}

void Gate::let_go(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  ::close(found->second.fd);
  const auto known = handed_over_.find(found->second.peer);
  if (known != handed_over_.end() && known->second == id) handed_over_.erase(known);
  connections_.erase(found);
}

}  // namespace dtrun::rendezvous
