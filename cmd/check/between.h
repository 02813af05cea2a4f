// `dtrun doctor` for a job of several nodes: an ordinary run of the prober, with the job's own way to meet.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cmd/check/core/report.h"
#include "cmd/options/options.h"

namespace dtrun::cmd {

struct Meeting {
  Options options = {};           // the job's
  std::string run_id = {};        // of this short run
  int nodes = 1;                  // that it has at most; 0: as many as hosts are named
  std::chrono::seconds wait{30};  // for all of them
};

// Starts dtrun with a prober on this node (or on all hosts that the options name), and waits for its report.
// Its notices go to standard error. Nothing: there is no report; the exit code tells, and dtrun has said why.
struct LookBetween {
  std::optional<Report> report = {};
  int exit_code = 0;
};
LookBetween look_between(const Meeting& meeting);

// The prober's own part, on one of `nodes`: prints its report for look_between(). Returns the exit code.
int run_prober(Options job, int nodes, const Environment& environment);

}  // namespace dtrun::cmd
