// How workers and jobs ended, in the agent's own words: plain structs for the pure core. agent/wire.h
// translates them from and to the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/exit_codes.h"

namespace dtrun::agent {

// How one worker ended.
struct WorkerOutcome {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  int pid = 0;
  std::string host;
  int exit_code = 0;  // valid when signal is 0
  int signal = 0;
  bool collateral = false;               // stopped by its agent, or ended only because a peer did
  bool retryable = true;                 // false: the same failure would come back
  std::vector<std::string> stderr_tail;  // oldest first
  std::string error;                     // what the worker said of itself; may be empty
  double uptime_s = 0;
  std::string traceback;  // from its error file; may be empty
  double ended_at = 0;    // seconds since 1970 by its host's clock: for people, never compared
  EndCause cause = EndCause::kUnknown;

  bool ok() const { return exit_code == 0 && signal == 0; }
};

// The coordinator's last word.
struct JobEnd {
  int exit_code = 0;
  std::string reason;  // one sentence
  std::optional<WorkerOutcome> first_failure;
  std::vector<WorkerOutcome> followers;
  int more_followers = 0;  // left out of those
  int restart_count = 0;
  int membership_changes = 0;
};

// What rank 0 of the built-in trainer says when training is complete.
struct Completion {
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = -1;  // 0..1; negative: none
  std::string model_path;
};

}  // namespace dtrun::agent
