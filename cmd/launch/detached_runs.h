// The detached runs that were started from this machine: a small file each, with the facts that are needed to
// call their hosts again.
#pragma once

#include <string>
#include <vector>

#include "cmd/launch/launcher.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

struct DetachedHost {
  std::string host;  // its destination
  int node = 0;      // its number in the run
};

struct DetachedRun {
  std::string run_id;
  std::vector<std::string> ssh;  // LaunchPlan::ssh
  bool accept_new_host_keys = false;
  std::string directory = {};  // that of the launch: `ssh` may name files in it
  std::vector<DetachedHost> hosts = {};
  bool ended = false;  // as far as it is known here
};

// EX_CANTCREAT on failure.
Status check_can_remember();
Status remember_run(const DetachedRun& run);

// Sorted by name. Those that ended more than 30 days ago are forgotten.
std::vector<DetachedRun> detached_runs();

// The named one; with an empty name the only one that goes on. EX_UNAVAILABLE if there is none, as with
// `dtrun status`, EX_USAGE if there are several; with those that there are.
Result<DetachedRun> find_detached_run(const std::string& run_id);

// A plan to call its hosts again as its launch did; changes this process' directory to that of the launch.
// The caller fills in the purpose's own values.
LaunchPlan plan_to_come_back(const DetachedRun& run, Purpose purpose);

}  // namespace dtrun::cmd
