// A cluster on a virtual clock: agents, their workers' fates and a network with delay and loss around the
// real state machine. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/core/messages.h"

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
  int breaks = 0;                // connections that break between two messages, one at a time
  double late_message = 0.02;    // share of messages that take up to 0.8 s instead of 20 ms
  Millis reconnect = 20;         // an agent dials again within this time,
  double late_reconnect = 0.2;   // but this share of them within 2 s
  int coordinator_restarts = 0;  // it forgets everything, and all connections break
  bool in_memory_recovery =
      false;              // workers outlive generations, and replacements load before they take part
  int least_workers = 1;  // that the job must have for each node's memory
};

// The injected failures. A crash counts where the agent lived and knew of no end.
struct Injected {
  int crashes = 0;
  int silences = 0;         // connections that turned into black holes
  int breaks = 0;           // connections that broke
  int failures = 0;         // of workers
  int forgotten = 0;        // restarts of the coordinator
  int forgotten_seats = 0;  // those of the generations that it thereby forgot
  std::int64_t hit = 0;  // newest generation whose work an agent gave up: it crashed, failed or lost its seat
  int disturbances() const { return crashes + silences + breaks + failures + forgotten; }
};

struct SimResult {
  std::string broken;  // an invariant, or "" if all held
  bool over = false;   // the coordinator ended the job, or nobody is left who knows it
  int exit_code = -1;
  int waiting = 0;  // agents alive that never heard of an end
  Injected injected;
  std::int64_t generations = 0;  // the newest one
  std::int64_t events = 0;
  int restarts = 0;      // after worker failures
  int regroups = 0;      // generations formed because nodes were lost or came
  int lost_touch = 0;    // seats whose member's connection broke while their generation ran
  int resumed = 0;       // seats that their member took again
  int away_at_end = 0;   // seats that waited for their member when the job ended
  bool adopted = false;  // the last generation is one that the coordinator did not form itself
  Millis ended_at = 0;
};

SimResult simulate(const SimSettings& settings);

}  // namespace dtrun::rendezvous
