// Time as a test may judge it. On a machine with other work a thread waits for a processor, and every bound
// on wall time fails by chance. A bound in fair time does not: the kernel tells how long something of this
// entry was ready to run and did not (pressure stall information, "some":
// docs.kernel.org/accounting/psi.html), and that is taken off. The launcher of an entry
// (tests/support/box.cc) names the file to read; without it this is wall time.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>

namespace dtrun::test {

// How long a thread of this entry was ready and had no processor, since a time in the past. Zero if it is not
// known.
inline std::chrono::microseconds stalled() {
  const char* path = std::getenv("DTRUN_TEST_PRESSURE");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[256] = {};
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  const std::string line(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t total = line.find("total=");
  return std::chrono::microseconds(total == std::string::npos ? 0 : std::atoll(line.c_str() + total + 6));
}

// Runs from its construction on. Any thread.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Wall time without the stalls, but an eighth of it at least: a bound can fail under any load. For upper
  // bounds.
  std::chrono::nanoseconds fair() const {
    const auto all = wall();
    return std::max<std::chrono::nanoseconds>(all - (stalled() - stalled_), all / 8);
  }
  // For lower bounds, which load cannot break.
  std::chrono::nanoseconds wall() const { return Clock::now() - begin_; }

 private:
  Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds stalled_ = stalled();
};

// How long a test waits for what must come, in fair time. For loops that `eventually` does not fit.
class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds limit) : limit_(limit) {}
  bool is_over() const { return watch_.fair() > limit_; }

 private:
  Stopwatch watch_;
  std::chrono::nanoseconds limit_;
};

// Like condition_variable::wait_for, but the limit is in fair time, for which no system call waits.
template <class Predicate>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              std::chrono::nanoseconds limit, Predicate holds) {
  for (const Patience patience(limit); !holds(); changed.wait_for(lock, std::chrono::milliseconds(20)))
    if (patience.is_over()) return false;
  return true;
}

// A time that a test sets short in the product, which judges by wall time: a thread that starves for it makes
// the product rightly decide otherwise. The launcher hears of it. If such an entry fails and something of it
// was stalled for a quarter of that time at a stretch, the entry is inconclusive and runs again.
template <class Duration>
Duration soon(Duration time) {
  const char* path = std::getenv("DTRUN_TEST_SHORT_TIMES");
  const int fd = path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return time;
  const std::string line = std::to_string(std::chrono::ceil<std::chrono::milliseconds>(time).count()) + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
  return time;
}

}  // namespace dtrun::test
