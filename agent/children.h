// The agent's processes: its workers, orphans of the workers' descendants, and the watchdog. Reaps those that
// have ended, and kills the processes that workers leave behind (agent/process/proc_scan.h finds them by the
// job's mark).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/process/left_behind.h"
#include "agent/process/watchdog.h"
#include "agent/process/worker_process.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

class Children {
 public:
  using Tell = std::function<void(const std::string&)>;  // people

  // `tag` is the watchdog's. To be made before the job starts any other process.
  Children(std::string tag, Watchdog& watchdog);

  // Every worker has a serial number that is never used again: a late event of an old worker finds no new
  // one.
  WorkerProcess& add(int serial, std::unique_ptr<WorkerProcess> worker);
  WorkerProcess* find(int serial);        // null: forgotten
  std::vector<WorkerProcess*> workers();  // all except forgotten ones
  // By local rank, for `nproc` workers; 0 for one that does not run.
  std::vector<pid_t> pids(int nproc) const;
  // Ends those that have not ended.
  void clear() { workers_.clear(); }
  void forget_ended();
  bool empty() const { return workers_.empty(); }

  // A child of ours that is no worker and belongs to no job: it is left alone.
  void spare(pid_t pid) { spared_.push_back(pid); }

  void signal_groups(int number);
  void send(const control::FromAgent& message);
  void pause_output(bool paused);
  bool any_paused() const;  // its output is not read

  // To be called on SIGCHLD. Reaps workers, the watchdog, and orphans that became our children because we are
  // their subreaper. Starts a new watchdog if the old one ended.
  void reap();

  // Ends the processes that `worker` left behind: they get SIGTERM, and until `deadline` to end. Returns true
  // if there are any. To be called while `worker` is a zombie.
  bool let_end(Loop& loop, const WorkerProcess& worker, Loop::Clock::time_point deadline, const Tell& tell);
  // The same, but kills all of them that left the worker's group (setsid, a daemon); the group is for the
  // worker to kill. `tell` may be empty.
  void sweep(const WorkerProcess& worker, const Tell& tell);
  // True if any process is left that was given time to end.
  bool left_behind() const { return !left_behind_.empty(); }
  // Kills these processes, and says `why`.
  void kill_left_behind(const std::string& why);
  // Kills every process that carries the job's tag. Only to be called while no worker runs.
  void sweep();
  // Kills every unknown child of this process. Needed where limits cannot be tagged
  // (agent/core/limit_tag.h): a daemon that left its parent, its group and its environment can then be known
  // only because it became our child. Only to be called while no worker runs.
  void kill_unknown_children();

 private:
  void sweep_tag(const std::string& tag);
  std::vector<pid_t> known() const;
  void look_at_left_behind();

  const std::string tag_;
  Watchdog& watchdog_;
  int watchdog_restarts_ = 0;
  const bool outsiders_;                                   // this process had children before the job began
  std::map<int, std::unique_ptr<WorkerProcess>> workers_;  // by serial
  std::map<std::string, std::unique_ptr<LeftBehind>> left_behind_;  // by tag
  std::vector<pid_t> spared_;
};

}  // namespace dtrun::agent
