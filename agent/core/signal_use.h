// The use of a signal that this agent gets. Pure.
#pragma once

#include "agent/core/job_spec.h"

namespace dtrun::agent {

enum class SignalUse {
  kNone,
  kEnds,        // the job is told to end
  kForWorkers,  // passed on to them, and nothing else
  kStops,       // a terminal's Ctrl-Z: the workers stop, and then this process
};

SignalUse use_of_signal(int number, const JobSpec& spec);

}  // namespace dtrun::agent
