// The summary of a run that succeeded: how long it took, where the time went, and the steps that were done
// again. Pure; agent/core/supervisor/decide.cc decides when it is printed.
#pragma once

#include <cstdint>
#include <string>

#include "proto/core/training.h"

namespace dtrun::agent {

// Counts the steps that were trained more than once, generation by generation, from reports of the built-in
// trainer's workers of this node. A worker that is killed does not report its last steps, so the true
// number may be a little higher, never lower.
class StepsRedone {
 public:
  // `best_known`: the furthest step that an earlier generation is known to have got to, wherever it ran.
  void begin_generation(std::int64_t best_known);
  // This generation began after `first_step` steps and has done `step`. Reports may come in any number.
  void progressed(std::int64_t first_step, std::int64_t step);

  std::int64_t count() const { return earlier_ + in_this_generation(); }

 private:
  std::int64_t in_this_generation() const;

  std::int64_t earlier_ = 0;                // redone by generations that are over
  std::int64_t best_ = 0;                   // step that any of them got to
  std::int64_t first_step_ = 0, step_ = 0;  // of this generation
};

// The run as this node saw it.
struct RunSummary {
  double seconds = 0;  // since its agent began
  int restarts = 0;
  int membership_changes = 0;
  std::int64_t steps_redone = 0;
  std::string host = {};  // where the model is, if its reader may be elsewhere
};

// "done: 2345 steps, test accuracy 89.1 %, loss 0.302, model in runs/x/model.safetensors on node1"; an empty
// host is left out.
std::string done_line(const Completion& completion, const std::string& host = "");

// For the built-in trainer: done_line, and up to four lines more, without a final newline.
std::string summary_text(const Completion& completion, const RunSummary& summary);

// For another program: one line; empty if there were no restarts.
std::string program_summary_text(const RunSummary& summary);

}  // namespace dtrun::agent
