// The coordinator's invariants, checked after every step: of the state by itself, of the state compared with
// the previous one, and of the messages sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous {

class Invariants {
 public:
  // `deep`: also checks what takes time proportional to the number of members. Returns the broken invariant,
  // or "".
  std::string check(const State& state, const Event& event, const std::vector<Action>& actions, Millis now,
                    bool deep = true);

 private:
  std::string check_progress(const State& state, Millis now) const;
  std::string check_messages(const State& state, const Event& event,
                             const std::vector<Action>& actions) const;
  std::string check_assignments(const State& state, const Event& event,
                                const std::vector<Action>& actions) const;
  std::string check_end(const State& state, const Event& event, const std::vector<Action>& actions) const;
  std::string check_time(const State& state, Millis now) const;

  // The previous step's.
  Phase phase_ = Phase::kGathering;
  std::int64_t generation_ = 0;
  bool had_membership_ = false;
  int restarts_ = 0;
  std::int64_t best_step_ = 0;
  bool ended_ = false;
  bool counts_time_ = false;
  double spent_ = 0;  // in all, at:
  Millis at_ = 0;
};

}  // namespace dtrun::rendezvous
