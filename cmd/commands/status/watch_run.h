// `dtrun status --watch RUN_ID` shows one run until it is over, --until PHASE waits for a phase of it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cmd/options/values.h"
#include "proto/core/times.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {

struct WatchedRun {
  Endpoint endpoint;
  std::string where;  // that endpoint as text
  std::string run_id;
  bool json = false;
  bool exit_status = false;
  std::optional<rendezvous::v1::RunStatus::Phase> until = {};  // shown only once it is in this phase
  // How the run ended, if an agent of this host left word of an end at or after `since` (seconds since 1970).
  std::function<std::optional<rendezvous::v1::RunStatus>(double since)> left_word;
  std::optional<rendezvous::JobKey> key = {};
  Times::Duration until_gone = Times().until_gone;
};

// The exit code: with `exit_status` the run's, else 0; 69 if the run is not known, its coordinator went away
// before it told how the run ended, or it is over and was not seen in the phase; 77 if the key is another.
int watch_run(const WatchedRun& watched);

}  // namespace dtrun::cmd
