// The words of the agent's decisions: those that it shares with the coordinator, and one of its own.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::agent {

using rendezvous::Assignment;
using rendezvous::JobEnd;
using rendezvous::Progress;
using rendezvous::WorkerOutcome;

// What rank 0 of the built-in trainer says when training is complete.
struct Completion {
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = -1;  // 0..1; negative: none
  std::string model_path;
};

}  // namespace dtrun::agent
