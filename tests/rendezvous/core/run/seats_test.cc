// Seats by themselves: their counts, and the time that an away seat waits.
#include "rendezvous/core/run/seats.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::seats_test {
namespace {

Seat::Away away(const MemberId& id, Millis until) {
  return {.until = until, .how_lost = "lost its connection", .member_id = id};
}

using Ranks = std::vector<int>;

}  // namespace

TEST_CASE("a seat is open until its member has finished, stopped or gone, and is counted once") {
  Seats seats({11, 12, 13, 14});
  CHECK(seats.open() == 4);
  seats.set_finished(0);
  seats.set_gone(0);  // a node may leave once its work is done
  CHECK(seats.open() == 3);
  seats.set_stopped(1);
  seats.set_gone(2);
  CHECK(seats.open() == 1);
  CHECK(seats.finished() == 1);
  CHECK_FALSE(seats.all_finished());
  CHECK_FALSE(seats[2].member);
  CHECK(seats[3].member == 14);
}

TEST_CASE("an away seat is open and has no member, and its member finds it") {
  Seats seats({11, 12});
  seats.set_away(1, away("b", 300));
  CHECK(seats.away() == 1);
  CHECK(seats.open() == 2);
  CHECK_FALSE(seats[1].member);
  CHECK(seats.away_seat_of("b") == 1);
  CHECK_FALSE(seats.away_seat_of("a"));
  seats.set_back(1, 22);
  CHECK(seats.away() == 0);
  CHECK(seats[1].member == 22);
  CHECK_FALSE(seats.away_seat_of("b"));
  CHECK(seats.deadline() == kNever);
}

TEST_CASE("each away seat waits for its own time") {
  Seats seats({11, 12, 13});
  seats.set_away(2, away("c", 300));
  seats.set_away(0, away("a", 500));
  CHECK(seats.deadline() == 300);
  CHECK(seats.overdue(299).empty());
  CHECK(seats.overdue(300) == Ranks{2});
  seats.give_up(2);
  CHECK(seats.deadline() == 500);
  CHECK(seats.away() == 1);
  CHECK_FALSE(seats.away_seat_of("c"));
  CHECK(seats.overdue(500) == Ranks{0});
  seats.give_up(0);
  CHECK(seats.deadline() == kNever);
}

TEST_CASE("a wait can be cut short, but never grows") {
  Seats seats = Seats::all_away(2, {.until = 15000, .how_lost = "did not come back"});
  CHECK(seats.deadline() == 15000);
  seats.wait_at_most_until(3000);
  seats.wait_at_most_until(9000);
  CHECK(seats.deadline() == 3000);
  CHECK(seats.overdue(3000) == Ranks{0, 1});
  Seats taken({11});
  taken.wait_at_most_until(3000);
  CHECK(taken.deadline() == kNever);
}

}  // namespace dtrun::rendezvous::seats_test
