// The agent's one epoll loop: descriptors and timers call back on the thread that runs it. Not thread-safe;
// another thread reaches it through an eventfd (agent/link.h).
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "proto/base/descriptor.h"
#include "proto/core/millis.h"
#include "proto/core/status.h"

namespace dtrun::agent {

class Loop {
 public:
  using Clock = std::chrono::steady_clock;
  using OnReady = std::function<void(std::uint32_t epoll_events)>;
  using TimerId = std::pair<Clock::time_point, std::uint64_t>;

  Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  Loop(const Loop&) = delete;

  // Calls `ready` whenever `fd` has one of `events` (EPOLLIN, EPOLLOUT; hang-up and error always come). False
  // for a descriptor that epoll cannot watch because it is always ready (a regular file).
  bool watch(int fd, std::uint32_t events, OnReady ready);
  void change(int fd, std::uint32_t events);
  // To be called before `fd` is closed. No callback of it runs afterwards.
  void forget(int fd);

  TimerId call_at(Clock::time_point when, std::function<void()> callback);
  void cancel(TimerId id) { timers_.erase(id); }

  // Waits for the next thing to happen and runs its callbacks. Fails only if epoll itself does.
  Status run_once();

 private:
  struct Watch {
    int fd;
    OnReady ready;
  };

  int wait_ms() const;
  void run_timers();

  Descriptor epoll_;
  std::uint64_t next_serial_ = 1;
  std::unordered_map<int, std::uint64_t> serials_;                     // by descriptor
  std::unordered_map<std::uint64_t, std::shared_ptr<Watch>> watches_;  // by serial: never reused, unlike fds
  std::map<TimerId, std::function<void()>> timers_;
};

// One thing to happen later, which a new set() replaces; not once this object is gone.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;

  void set(Loop::Clock::time_point when, std::function<void()> callback);
  void cancel();
  bool is_set() const { return id_.has_value(); }  // not while it calls back

 private:
  Loop& loop_;
  std::optional<Loop::TimerId> id_;
};

// The loop's clock as the pure cores count it, and back.
inline Millis millis_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Loop::Clock::now().time_since_epoch()).count();
}
inline Loop::Clock::time_point time_point_of(Millis at) {
  return Loop::Clock::time_point(std::chrono::milliseconds(at));
}

}  // namespace dtrun::agent
