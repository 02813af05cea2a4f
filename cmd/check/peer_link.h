// Measures the path to another node over a connection that probe_all() made and a ProbeListener greeted.
// Then, as often as the one that measures wants: a number, so many bytes, and back comes an answer.
#pragma once

#include "cmd/check/connectivity_probe.h"
#include "cmd/check/core/facts.h"

namespace dtrun::cmd {

// Answers until the process ends: a thread accepts, and one more serves each connection.
void serve_peers(ProbeListener listener);

// Round trips, then 64 kB at once.
void try_messages(int connection, PathFacts* path);
// Round trips again, then for some 0.2 s what the path carries. Of several looks at one path the best counts:
// nobody is blamed for what a busy moment did.
void measure_rate(int connection, PathFacts* path);

}  // namespace dtrun::cmd
