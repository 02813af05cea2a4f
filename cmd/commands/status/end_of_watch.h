// Decides when the watch of one run is over, and with which exit code. Pure: takes the finding of each look
// at the coordinator.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/core/status.h"

namespace dtrun::cmd {

// The finding of one look.
struct Observation {
  enum class Finding { kRun, kOver, kNoSuchRun, kNoAnswer };
  Finding found = Finding::kNoAnswer;
  int exit_code = 0;  // kOver: the run's
  std::string why;    // kNoAnswer
};

class EndOfWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `where`: the endpoint. `exit_status`: end with the run's exit code, else with 0.
  EndOfWatch(std::string run_id, std::string where, bool exit_status)
      : run_id_(std::move(run_id)), where_(std::move(where)), exit_status_(exit_status) {}

  // Nothing while the watch goes on. A status with a message: how the run ended cannot be known; its exit
  // code is 69. A status without a message: the run is over, and the watch ends with the status's exit code.
  std::optional<Status> see(const Observation& look, Time now);

 private:
  Status unknown(const Observation& look) const;
  Status lost(const Observation& look) const;

  const std::string run_id_, where_;
  const bool exit_status_;
  bool seen_ = false;
  std::optional<Time> missed_since_;
};

}  // namespace dtrun::cmd
