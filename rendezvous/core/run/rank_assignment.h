// The rank_assignment of the next generation: which members take part, and with which ranks. Pure.
#pragma once

#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/run/members.h"

namespace dtrun::rendezvous {

struct RankAssignment {
  std::vector<ConnectionId> members;  // in rank order
  std::vector<Node> nodes;            // in rank order
  int world_size = 0;
};

// At most `max_nodes` of the members: first those that have a seat, then those with a given node rank, then
// the others; each group in the order in which they joined.
RankAssignment line_up(const Members& members, int max_nodes);

}  // namespace dtrun::rendezvous
