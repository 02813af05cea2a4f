// Decides when the watch of one run is over, and with which exit code. Pure: takes the finding of each look
// at the coordinator.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "proto/core/times.h"

namespace dtrun::cmd {

// The finding of one look.
struct Observation {
  enum class Finding { kRun, kOver, kNoSuchRun, kNoAnswer };
  Finding found = Finding::kNoAnswer;
  int exit_code = 0;  // kOver: the run's; kNoAnswer: of the failure
  std::string why;    // kNoAnswer
};

class EndOfWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Settings {
    std::string run_id, where = {};  // its endpoint
    bool exit_status = false;        // end with the run's exit code, else with 0
    // The phase that is waited for, also while the run is not known yet; empty: all of the run is watched.
    std::string until = {};
    Times::Duration until_gone = Times().until_gone;
  };
  explicit EndOfWatch(Settings settings) : settings_(std::move(settings)) {}

  // Nothing while the watch goes on. A status with a message: how the run ended cannot be known, or not as
  // what it is waited for. One without: the run is over, and the watch ends with the status's exit code.
  std::optional<Status> see(const Observation& look, Time now);

 private:
  Status unknown(const Observation& look) const;
  Status lost(const Observation& look) const;

  const Settings settings_;
  bool seen_ = false;
  std::optional<Time> missed_since_;
};

}  // namespace dtrun::cmd
