// The kernel's account of each worker, whatever program it is, and of all its descendants:
// rendezvous::WorkerUsage from /proc and the worker's control group.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/vocabulary.h"
#include "agent/health/group_usage.h"
#include "proto/core/control_group.h"

namespace dtrun::agent {

// Nanoseconds that threads of `text`, a /proc/PID/schedstat, were ready to run without a CPU; 0 for any other
// text.
std::int64_t run_delay(const std::string& text);
// Seconds that groups were throttled, by a cpu.stat of either version.
double throttled_seconds(const std::string& text);

// Of the processes that are in no group of `usages`, the one that has used most of `cpus`, the processors of
// a worker, from `before` to `now`, `seconds` later. Nothing if it used less than a hundredth of one.
std::optional<rendezvous::Neighbour> neighbour_of(const cpu_set_t& cpus, const ProcessTable& before,
                                                  const ProcessTable& now,
                                                  const std::map<pid_t, GroupUsage>& usages, double seconds);

class WorkerUsages {
 public:
  using Clock = std::chrono::steady_clock;

  // Two looks in a row are this far apart, so that they cost a job nothing; and the first one comes this long
  // after rest(). Between two searches of /proc, processes that a worker starts are not seen; what they have
  // used by then counts later.
  static constexpr std::chrono::milliseconds kGap{900};
  static constexpr int kLooksPerSearch = 5;

  WorkerUsages();

  // Workers start: there is nothing to be seen of them, and no time to lose.
  void rest(Clock::time_point now) { looked_at_ = now; }
  // By worker; output_age and last_line are not looked at. All numbers but resident_bytes and those of the
  // neighbour only grow while the worker lives.
  const std::map<pid_t, WorkerUsage>& look(const std::vector<pid_t>& leaders, Clock::time_point now);

 private:
  // Numbers of processes that may end, and take theirs with them.
  struct Counters {
    std::int64_t cpu_ticks = 0, run_delay = 0, major_faults = 0, read_bytes = 0, written_bytes = 0;
  };
  struct Seen {
    std::vector<pid_t> members;
    Counters newest, ended;            // of members now; of those that were
    std::string cgroup;                // the kernel's text on its control groups
    std::vector<ControlGroup> groups;  // that follow from the text
    double group_throttled = 0, throttled = 0;
    double stopped = 0;
    std::optional<rendezvous::Neighbour> neighbour;
  };

  void search(const std::vector<pid_t>& leaders, Clock::time_point now);
  WorkerUsage account_of(pid_t leader, Seen& seen) const;
  void look_at_group(pid_t leader, Seen& seen) const;

  const std::string mountinfo_;
  Clock::time_point looked_at_;
  double since_look_ = 0;  // seconds between the newest two
  int looks_ = 0;
  ProcessTable found_;  // by the newest search
  Clock::time_point found_at_;
  std::map<pid_t, Seen> seen_;
  std::map<pid_t, WorkerUsage> newest_;
};

}  // namespace dtrun::agent
