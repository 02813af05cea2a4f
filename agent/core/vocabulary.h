// The words of the agent's decisions: those that it shares with the coordinator, and one of its own.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::agent {

using rendezvous::Assignment;
using rendezvous::Hang;
using rendezvous::JobEnd;
using rendezvous::Place;
using rendezvous::Progress;
using rendezvous::RankRange;
using rendezvous::Stand;
using rendezvous::WorkerOutcome;

// What rank 0 of the built-in trainer says when training is complete.
struct Completion {
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = -1;  // 0..1; negative: none
  std::string model_path;
  // Values of its own generation, without evaluations. training_seconds 0: nothing was trained, or it was not
  // told.
  std::int64_t first_step = 0;  // done before that generation
  double training_seconds = 0;
  double samples_per_second = 0;
  double math = 0, wait_gradients = 0, wait_data = 0, other = 0;  // shares of training_seconds, 0..1
  std::uint64_t gpu_memory_peak = 0, gpu_memory_total = 0;        // bytes, of rank 0's GPU; 0: it had none
};

}  // namespace dtrun::agent
