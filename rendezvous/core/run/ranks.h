// Assigns a generation's group ranks, and computes where each node's worker ranks start. Pure;
// rank_assignment.h decides which members take part.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::rendezvous {

struct RankRequest {
  std::string host;
  int nproc = 1;
  std::optional<int> node_rank = {};       // --node_rank; distinct among the requests where given
  std::optional<int> previous_rank = {};   // group rank that the node had before
  std::string topology = {};               // where it is in the network, "pod2.rack7"; empty: not known
  std::optional<int> preferred_rank = {};  // as its cluster counts the nodes; need not be distinct
};

struct Rank {
  int group_rank = 0;
  int first_rank = 0;  // of the node's worker with local rank 0
};

// Ranks for `nodes`, which come in join order; same order in the result. Group ranks are 0 … n-1. In order of
// precedence: given node ranks (exact where below n, else in their order), agents of one host side by side,
// the rank that a node had, nodes of one place in the network side by side, preferred ranks, join order. So a
// replacement takes the rank of the node that is gone.
std::vector<Rank> assign_ranks(const std::vector<RankRequest>& nodes);

}  // namespace dtrun::rendezvous
