// The seats of one generation, one for each group rank, with the counts that decisions ask for. Pure
// bookkeeping: only the member functions of Seats change a seat, and they count it. Stepper decides what
// follows from a change.
//
// A seat outlives its member's connection for a moment. It is then away: until the member is back, and goes
// on as if nothing had happened, or until the time is over and the member is given up.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/run/deadlines.h"

namespace dtrun::rendezvous {

struct Seat {
  struct Away {
    Millis until = 0;         // the member may come back before that
    std::string how_lost;     // the reason for people if the member does not come back
    MemberId member_id = {};  // empty: any member that had this rank
  };

  std::optional<ConnectionId> member = {};  // none while away, or gone; may have left once the job is over
  bool finished = false;
  bool stopped = false;
  bool gone = false;
  std::optional<Away> away = {};

  bool open() const { return !finished && !stopped && !gone; }
};

class Seats {
 public:
  Seats() = default;
  // One seat for each of these members, in rank order.
  explicit Seats(const std::vector<ConnectionId>& members);
  // `count` seats that all wait for members that are not known.
  static Seats all_away(int count, const Seat::Away& away);

  int size() const { return static_cast<int>(seats_.size()); }
  const Seat& operator[](int rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  auto begin() const { return seats_.begin(); }
  auto end() const { return seats_.end(); }

  int open() const { return open_; }
  int finished() const { return finished_; }
  int away() const { return away_; }
  int taken() const { return taken_; }  // by members that are in touch
  bool all_finished() const { return finished_ == size(); }

  void set_finished(int rank);
  void set_stopped(int rank);
  void set_gone(int rank);                       // for good
  void set_away(int rank, Seat::Away away);      // REQUIRES: not away, the id is given
  void set_back(int rank, ConnectionId member);  // REQUIRES: away
  void give_up(int rank);                        // no longer away, but without a member. REQUIRES: away

  // The away seat that is known to be this member's.
  std::optional<int> away_seat_of(const MemberId& id) const;

  // No seat that is away now waits beyond `last`.
  void wait_at_most_until(Millis last);

  // Ranks of the away seats whose time is over at `now`: the caller gives each of them up.
  std::vector<int> overdue(Millis now);

  // No away seat's time is over before this; kNever if none is away.
  Millis deadline() const { return deadline_; }

 private:
  template <typename Change>
  void change(int rank, Change make);
  void count(const Seat& seat, int by);
  void end_wait(int rank, std::optional<ConnectionId> member);

  std::vector<Seat> seats_;  // by group rank
  int open_ = 0;
  int finished_ = 0;
  int away_ = 0;
  int taken_ = 0;
  std::map<MemberId, int> away_by_id_;  // where the id is known
  Millis deadline_ = kNever;
};

}  // namespace dtrun::rendezvous
