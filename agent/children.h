// The processes that are this agent's: its workers, the orphans of their descendants, and the guardian. Reaps
// what has ended, and kills what workers leave behind (agent/process/proc_scan.h knows it by the job's mark).
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/process/guardian.h"
#include "agent/process/worker_process.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

class Children {
 public:
  // `token` is the guardian's. To be made before the job starts any other process.
  Children(std::string token, Guardian& guardian);

  // Workers have serial numbers that are never used again: what comes late for an earlier one finds nobody.
  int next_serial() const { return next_serial_; }
  WorkerProcess& add(std::unique_ptr<WorkerProcess> worker);  // gets next_serial()
  WorkerProcess* find(int serial);                            // null: it is of an earlier generation
  std::vector<WorkerProcess*> workers();                      // of the newest generation
  // By local rank, for `nproc` workers; 0 for one that does not run.
  std::vector<pid_t> pids(int nproc) const;
  void clear() { workers_.clear(); }

  void signal_groups(int number);
  void send(const control::FromAgent& message);
  void pause_output(bool paused);

  // SIGCHLD came: reaps workers, orphans that came to us as their subreaper, and the guardian, which is
  // started anew.
  void reap();

  // Kills what left the worker's group (setsid, a daemon).
  void sweep(const WorkerProcess& worker);
  // Kills all that carries the job's mark. Only to be called while no worker runs.
  void sweep();
  // Where limits cannot be marked (agent/core/limit_mark.h), what gave up its parent, its group and its
  // environment is known by nothing but having come to us, the subreaper. Only to be called while no worker
  // runs.
  void sweep_strangers();

 private:
  void sweep_token(const std::string& token);
  std::vector<pid_t> known() const;

  const std::string token_;
  Guardian& guardian_;
  int guardian_restarts_ = 0;
  const bool outsiders_;                                   // this process had children before the job began
  std::map<int, std::unique_ptr<WorkerProcess>> workers_;  // by serial
  int next_serial_ = 0;
};

}  // namespace dtrun::agent
