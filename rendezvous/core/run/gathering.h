// The start of a generation: when enough members are there, what members hear while they wait, and when a
// running generation makes room for a newcomer.
#pragma once

#include <string>

#include "rendezvous/core/run/rank_assignment.h"
#include "rendezvous/core/run/stopping.h"
#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {

class Gathering {
 public:
  Gathering(Turn& turn, Stopping& stopping)
      : turn_(turn), stopping_(stopping), s_(turn.state()), now_(turn.now()) {}

  // Each does what is due in this turn, if anything is.
  void take_newcomer();
  void gather();
  void announce();

 private:
  void start_generation();
  std::string too_few() const;
  bool awaits_ready();
  std::string who_loads() const;
  std::string reason_to_start(const RankAssignment& rank_assignment) const;

  Turn& turn_;
  Stopping& stopping_;
  State& s_;
  const Millis now_;
};

}  // namespace dtrun::rendezvous
