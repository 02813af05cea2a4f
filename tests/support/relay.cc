#include "tests/support/relay.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/ports.h"

namespace dtrun::test {
namespace {

// A peer that does not read must not hold up the relay's end.
void limit_sending(int fd) {
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void close_with_reset(int fd) {
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
}

}  // namespace

// False once there is nothing more to pass on.
bool Relay::pass_on(int from, int to, std::string* record) {
  char chunk[65536];
  const ssize_t n = recv(from, chunk, sizeof chunk, 0);
  if (n > 0) {
    const std::lock_guard lock(mutex_);
    passed_.append(chunk, static_cast<std::size_t>(n));
    if (record != nullptr) record->append(chunk, static_cast<std::size_t>(n));
  }
  for (ssize_t sent = 0; sent < n;) {
    const ssize_t more = send(to, chunk + sent, static_cast<std::size_t>(n - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return n > 0;
}

Relay::Relay(int target_port) : target_port_(target_port) {
  listener_ = bound_to(0);
  if (listen(listener_, 64) != 0) throw std::runtime_error("the relay cannot listen");
  port_ = port_of(listener_);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake();
  thread_.join();
  close_all();
  close(listener_);
  close(wake_);
}

void Relay::reset() {
  {
    const std::lock_guard lock(mutex_);
    resetting_ = true;
  }
  wake();
}

void Relay::freeze() {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = true;
  }
  wake();
}

void Relay::thaw() {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = false;
  }
  wake();
}

std::string Relay::passed() const {
  const std::lock_guard lock(mutex_);
  return passed_;
}

std::string Relay::sent() const {
  const std::lock_guard lock(mutex_);
  return sent_;
}

int Relay::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

void Relay::wake() { eventfd_write(wake_, 1); }

void Relay::close_all() {
  for (const Pair& pair : pairs_) {
    close_with_reset(pair.from);
    close_with_reset(pair.to);
  }
  pairs_.clear();
}

void Relay::run() {
  for (;;) {
    std::vector<pollfd> polled{{wake_, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      if (std::exchange(resetting_, false)) close_all();
      if (!frozen_) {
        polled.push_back({listener_, POLLIN, 0});
        for (const Pair& pair : pairs_)
          polled.insert(polled.end(), {{pair.from, POLLIN, 0}, {pair.to, POLLIN, 0}});
      }
    }
    poll(polled.data(), polled.size(), -1);
    eventfd_t ignored;
    eventfd_read(wake_, &ignored);
    if (polled.size() == 1) continue;
    auto at = polled.begin() + 2;
    for (auto pair = pairs_.begin(); pair != pairs_.end(); at += 2) {
      const bool ended = (at[0].revents != 0 && !pass_on(pair->from, pair->to, &sent_)) ||
                         (at[1].revents != 0 && !pass_on(pair->to, pair->from));
      if (ended) {
        close(pair->from);
        close(pair->to);
      }
      pair = ended ? pairs_.erase(pair) : std::next(pair);
    }
    if (polled[1].revents != 0) accept_one();
  }
}

void Relay::accept_one() {
  const int from = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (from < 0) return;
  const int to = connected_to(target_port_);
  if (to < 0) return close_with_reset(from);
  limit_sending(from);
  limit_sending(to);
  pairs_.push_back({from, to});
  const std::lock_guard lock(mutex_);
  ++connections_;
}

}  // namespace dtrun::test
