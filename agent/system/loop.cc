#include "agent/system/loop.h"

#include <cerrno>
#include <limits>

namespace dtrun::agent {

bool Loop::watch(int fd, std::uint32_t events, OnReady ready) {
  const std::uint64_t serial = next_serial_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  serials_[fd] = serial;
  watches_[serial] = std::make_shared<Watch>(Watch{fd, std::move(ready)});
  return true;
}

void Loop::change(int fd, std::uint32_t events) {
  auto it = serials_.find(fd);
  if (it == serials_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = it->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::forget(int fd) {
  auto it = serials_.find(fd);
  if (it == serials_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(it->second);
  serials_.erase(it);
}

Loop::TimerId Loop::call_at(Clock::time_point when, std::function<void()> callback) {
  TimerId id{when, next_serial_++};
  timers_.emplace(id, std::move(callback));
  return id;
}

void Timer::set(Loop::Clock::time_point when, std::function<void()> callback) {
  cancel();
  id_ = loop_.call_at(when, [this, call = std::move(callback)] {
    id_.reset();
    call();
  });
}

void Timer::cancel() {
  if (id_) loop_.cancel(*id_);
  id_.reset();
}

int Loop::wait_ms() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  if (left.count() <= 0) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<long long>(ms, std::numeric_limits<int>::max()));
}

void Loop::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto callback = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    callback();
  }
}

Status Loop::run_once() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, wait_ms());
  if (count < 0 && errno != EINTR) return errno_status(kExitSoftware, "epoll_wait", errno);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t serial = events[i].data.u64;  // a copy: the kernel's struct is packed
    auto it = watches_.find(serial);
    if (it == watches_.end()) continue;  // forgotten by an earlier callback of this round
    const std::shared_ptr<Watch> keep = it->second;
    keep->ready(events[i].events);
  }
  run_timers();
  return {};
}

}  // namespace dtrun::agent
