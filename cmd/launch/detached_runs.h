// The detached runs that were started from this machine: a small file each, with what is needed to call
// their hosts again.
#pragma once

#include <string>
#include <vector>

#include "cmd/launch/launcher.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

struct DetachedHost {
  std::string destination;
  int node = 0;  // its number in the run
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

// The named one; with an empty name the only one that goes on. EX_UNAVAILABLE if there is none, as `dtrun
// status` has it, EX_USAGE if there are several; with those that there are.
Result<DetachedRun> find_detached_run(const std::string& run_id);

// To call its hosts again as its launch did, in whose directory this process is from then on. The caller
// fills in what is to be done.
LaunchPlan plan_to_come_back(const DetachedRun& run, Purpose purpose);

}  // namespace dtrun::cmd
