// One generation as the coordinator assigned it: the nodes, their ranks, and where rank 0 is found.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::agent {

struct AssignedNode {
  std::string host;
  std::string address;
  int nproc = 1;
  int first_rank = 0;
};

// What the coordinator remembers of crashes. The agent only carries it, for a coordinator that is restarted.
struct CrashHistory {
  int quick_restarts = 0;
  std::int64_t best_step = 0;
  int alike = 0;
  int rank = 0;
  int exit_code = 0;
  int signal = 0;
};

struct Assignment {
  std::int64_t generation = 0;
  int group_rank = 0;  // of this node
  int world_size = 1;
  int node_count = 1;
  AssignedNode node;           // this one
  int restart_count = 0;       // job-wide, worker failures only
  int membership_changes = 0;  // job-wide: nodes lost or taken in
  std::string master_address;
  int master_port = 0;
  CrashHistory crash_history;
  std::string reason;  // why this generation was formed, one sentence

  const AssignedNode& here() const { return node; }
};

}  // namespace dtrun::agent
