// Members that go: they leave, fall silent, or lose their connection and do not come back.
#pragma once

#include <string>

#include "rendezvous/core/run/stopping.h"
#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {

class Leaving {
 public:
  Leaving(Turn& turn, Stopping& stopping)
      : turn_(turn), stopping_(stopping), s_(turn.state()), now_(turn.now()) {}

  void leave(ConnectionId id, const Leave& leave);
  void lose_touch(ConnectionId id, const std::string& how);
  void evict(int rank, const std::string& why);

  // What is due in this turn: silent members, away ones whose time is over, and the end of the coordinator's
  // host.
  void advance();

 private:
  void sweep();
  void give_up_away();
  void note_gone(News::Kind kind, const std::string& host, const std::string& why);
  void give_up_predecessor();
  void end_with_host();
  void remove(ConnectionId id, News::Kind kind, const std::string& how);
  bool needs(const Member& member) const;
  bool falls_below(int members) const;
  std::string not_back(int rank) const;

  Turn& turn_;
  Stopping& stopping_;
  State& s_;
  const Millis now_;
};

}  // namespace dtrun::rendezvous
