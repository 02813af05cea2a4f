// The agent and its coordinator: joining, heartbeats, waiting for a generation, and a connection that is
// lost.
#pragma once

#include "agent/core/supervisor/turn.h"

namespace dtrun::agent {

class Connection : Part {
 public:
  Connection(Turn& turn, ConnectionState& own) : Part(turn), own_(own) {}

  void on(const event::Opened& e);
  void on(const event::Connected& e);
  void on(const event::Disconnected& e);
  void on(const event::JoinAck& e);
  void on(const event::WaitStatus& e);
  void on(const event::News& e);
  void on(const event::Verdict& e);
  void on(const event::Tick& e);

  void send_heartbeat();
  // There is new progress, `first` of the generation: `dtrun status` shows what heartbeats carry.
  void progressed(bool first);
  // Ranks have come: nothing is waited for any more.
  void assigned();
  // The coordinator has given this node's place in the current generation up.
  void lose_seat() { own_.seated = false; }
  // A generation begins, of which the coordinator knows this node as a part. Tells people why, while the last
  // one is still the current one.
  void begin(const Assignment& next);
  // Says how long we still wait for a coordinator, or for enough other nodes. `again`: but for its numbers it
  // was said before.
  void show_wait(bool again = false);
  // Says so again if that is due.
  void remind();

 private:
  void beat();
  void tell_lost();
  void announce(const Assignment& next);
  Millis next_notice();

  ConnectionState& own_;
};

}  // namespace dtrun::agent
