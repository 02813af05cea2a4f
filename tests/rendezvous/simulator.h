// A cluster on a virtual clock: agents, their workers' fates and a network with delay and loss around the
// real state machine. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/messages.h"

namespace dtrun::rendezvous {

struct SimSettings {
  std::uint64_t seed = 0;
  int agents = 4;
  int min_nodes = 2;
  int max_nodes = 4;
  int max_restarts = 3;
  Millis join_spread = 3000;     // agents start within this time
  Millis work = 20000;           // a generation's workers run up to this long
  int crashes = 0;               // agents that die, half of them without a sign
  double restarted = 0.7;        // share of them that come back, as new members
  double worker_failure = 0;     // per node and generation
  double silent_loss = 0;        // per message: the connection turns into a black hole
  double broken = 0;             // per message: the connection breaks
  int coordinator_restarts = 0;  // it forgets everything, and all connections break
};

struct SimResult {
  std::string broken;  // an invariant, or "" if all held
  bool over = false;   // the coordinator ended the job, or nobody is left who knows it
  int exit_code = -1;
  int waiting = 0;  // agents alive that never heard of an end
  std::int64_t generations = 0;
  std::int64_t events = 0;
  int resumed = 0;   // members that came back to their seat
  int restarts = 0;  // after worker failures
  Millis ended_at = 0;
};

SimResult simulate(const SimSettings& settings);

}  // namespace dtrun::rendezvous
