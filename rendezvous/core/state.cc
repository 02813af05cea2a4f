#include "rendezvous/core/state.h"

#include "rendezvous/core/stepper.h"

namespace dtrun::rendezvous {

std::vector<Action> step(State& state, const Event& event, Millis now) {
  return Stepper(state, now).run(event);
}

Millis next_deadline(const State& state) {
  return std::min({state.join_deadline, state.last_call, state.order_at, state.settle_deadline,
                   state.restart_at, state.sweep_at, state.away_at, state.announce_at});
}

}  // namespace dtrun::rendezvous
