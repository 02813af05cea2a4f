// One turn of the agent's state machine: the state, the time, and the actions that follow. The parts that
// decide share it: Connection, Workers, Generation and Ending. Each of them reads the whole state, writes its
// own part of it alone, knows those before it, and asks them by their public functions; decide.cc calls them
// in order.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/supervisor/decide.h"

namespace dtrun::agent {

struct Turn {
  const State& state;
  const Millis now;
  std::vector<Action> actions = {};
  bool to_settle = false;  // Ending::settle() has to look: workers, or the reasons to end, have changed
};

class Part {
 protected:
  explicit Part(Turn& turn) : s(turn.state), now_(turn.now), turn_(turn) {}

  std::int64_t generation() const { return s.generation.number(); }
  bool workers_run() const { return s.workers.running() > 0; }
  bool due(const std::optional<Millis>& at) const { return at && *at <= now_; }

  template <typename A>
  void emit(A action) {
    turn_.actions.push_back(std::move(action));
  }
  void print(std::string text) { emit(action::Print{.text = std::move(text)}); }
  void settle_later() { turn_.to_settle = true; }

  const State& s;
  const Millis now_;

 private:
  Turn& turn_;
};

}  // namespace dtrun::agent
