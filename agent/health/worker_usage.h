// The kernel's account of each worker, whatever program it is, and of all its descendants:
// rendezvous::WorkerUsage from /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "agent/core/vocabulary.h"

namespace dtrun::agent {

// Nanoseconds that threads of `text`, a /proc/PID/schedstat, were ready to run without a CPU; 0 for any other
// text.
std::int64_t run_delay(const std::string& text);

class WorkerUsages {
 public:
  using Clock = std::chrono::steady_clock;

  // Two looks in a row are this far apart, so that they cost a job nothing; and the first one comes this long
  // after rest(). Between two searches of /proc, processes that a worker starts are not seen; what they have
  // used by then counts later.
  static constexpr std::chrono::milliseconds kGap{900};
  static constexpr int kLooksPerSearch = 5;

  // Workers start: there is nothing to be seen of them, and no time to lose.
  void rest(Clock::time_point now) { looked_at_ = now; }
  // By worker; output_age and last_line are not looked at. All numbers but resident_bytes only grow
  // while the worker lives.
  const std::map<pid_t, WorkerUsage>& look(const std::vector<pid_t>& leaders, Clock::time_point now);

 private:
  // Numbers of processes that may end, and take theirs with them.
  struct Counters {
    std::int64_t cpu_ticks = 0, run_delay = 0, major_faults = 0, read_bytes = 0, written_bytes = 0;
  };
  struct Seen {
    std::vector<pid_t> members;
    Counters newest, ended;  // of members now; of those that were
  };

  void search(const std::vector<pid_t>& leaders);
  static WorkerUsage account_of(Seen& seen);

  Clock::time_point looked_at_ = Clock::now();
  int looks_ = 0;
  std::map<pid_t, Seen> seen_;
  std::map<pid_t, WorkerUsage> newest_;
};

}  // namespace dtrun::agent
