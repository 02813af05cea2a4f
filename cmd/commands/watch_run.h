// `dtrun status --watch RUN_ID`: shows one run until it is over.
#pragma once

#include <string>

#include "cmd/options/values.h"

namespace dtrun::cmd {

struct WatchedRun {
  Endpoint endpoint;
  std::string where;  // that endpoint as text
  std::string run_id;
  bool json = false;
  bool exit_status = false;
};

// The exit code: with `exit_status` the run's, else 0; 69 if the run is not known there, or its coordinator
// went away without saying how it ended.
int watch_run(const WatchedRun& watched);

}  // namespace dtrun::cmd
