// The summary of a run that succeeded: how long it took, and where the time went. Pure;
// agent/core/supervisor/decide.cc decides when it is printed.
#pragma once

#include <cstdint>
#include <string>

#include "proto/core/goodput.h"
#include "proto/core/training.h"

namespace dtrun::agent {

// The run as this node saw it.
struct RunSummary {
  double seconds = 0;  // since its agent began
  int restarts = 0;
  int membership_changes = 0;
  Goodput goodput = {};        // as the coordinator saw the run
  std::string straggler = {};  // the sentence on the worker that slowed it; empty: none did
  std::string host = {};       // where the model is, if its reader may be elsewhere
};

// "done: 2345 steps, test accuracy 89.1 %, loss 0.302, model in runs/x/model.safetensors on node1"; an empty
// host is left out.
std::string done_line(const Completion& completion, const std::string& host = "");

// For the built-in trainer: done_line, and up to six lines more, without a final newline.
std::string summary_text(const Completion& completion, const RunSummary& summary);

// For another program: one line; empty if there were no restarts.
std::string program_summary_text(const RunSummary& summary);

}  // namespace dtrun::agent
