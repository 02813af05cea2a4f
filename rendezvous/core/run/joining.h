// Members that come: for the first time, back to their seats, or only for the job's result.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/core/run/leaving.h"
#include "rendezvous/core/run/stopping.h"
#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {

class Joining {
 public:
  Joining(Turn& turn, Stopping& stopping, Leaving& leaving)
      : turn_(turn), stopping_(stopping), leaving_(leaving), s_(turn.state()), now_(turn.now()) {}

  // Admits the member, or refuses it. `generation` is the newest that it knows.
  void on_join(ConnectionId from, std::int64_t generation, const Join& join);

 private:
  bool tell_result(ConnectionId from, const Join& join);
  std::optional<Refusal> refusal(const Join& join) const;
  void refuse(ConnectionId from, const Join& join, const Refusal& refusal);
  void tell_other_command(const Join& join);
  void admit(ConnectionId from, std::int64_t generation, const Join& join);
  bool adopts(std::int64_t generation, const Join& join) const;
  void adopt(std::int64_t generation, const Join& join);
  void give_up_the_gone();
  void give_up_predecessor(const std::string& host);
  void welcome_back(Member& member, std::int64_t generation, bool seated);
  std::optional<int> seat_to_resume(std::int64_t generation, const Join& join) const;
  void resume(ConnectionId id, Member& member, int rank);
  void catch_up(ConnectionId id, int rank, bool missed_assignment);

  Turn& turn_;
  Stopping& stopping_;
  Leaving& leaving_;
  State& s_;
  const Millis now_;
};

}  // namespace dtrun::rendezvous
