#include "rendezvous/core/run/seats.h"

#include <algorithm>
#include <utility>

namespace dtrun::rendezvous {

Seats::Seats(const std::vector<ConnectionId>& members) {
  for (ConnectionId member : members) {
    seats_.push_back({.member = member});
    count(seats_.back(), +1);
  }
}

Seats Seats::all_away(int count, const Seat::Away& away) {
  Seats seats;
  seats.seats_.assign(static_cast<std::size_t>(count), {.away = away});
  for (const Seat& seat : seats.seats_) seats.count(seat, +1);
  seats.deadline_ = away.until;
  return seats;
}

void Seats::count(const Seat& seat, int by) {
  if (seat.open()) open_ += by;
  if (seat.finished) finished_ += by;
  if (seat.away) away_ += by;
  if (seat.member) taken_ += by;
}

template <typename Change>
void Seats::change(int rank, Change make) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  count(seat, -1);
  make(seat);
  count(seat, +1);
}

void Seats::set_finished(int rank) {
  change(rank, [](Seat& seat) { seat.finished = true; });
}

void Seats::set_stopped(int rank) {
  change(rank, [](Seat& seat) { seat.stopped = true; });
}

void Seats::set_gone(int rank) {
  change(rank, [](Seat& seat) {
    seat.gone = true;
    seat.member.reset();
  });
}

void Seats::set_away(int rank, Seat::Away away) {
  deadline_ = std::min(deadline_, away.until);
  away_by_id_[away.member_id] = rank;
  change(rank, [&](Seat& seat) {
    seat.member.reset();
    seat.away = std::move(away);
  });
}

void Seats::set_back(int rank, ConnectionId member) { end_wait(rank, member); }

void Seats::give_up(int rank) { end_wait(rank, std::nullopt); }

void Seats::end_wait(int rank, std::optional<ConnectionId> member) {
  change(rank, [&](Seat& seat) {
    away_by_id_.erase(seat.away->member_id);
    seat.away.reset();
    seat.member = member;
  });
  if (away_ == 0) deadline_ = kNever;
}

std::optional<int> Seats::away_seat_of(const MemberId& id) const {
  const auto known = away_by_id_.find(id);
  if (known == away_by_id_.end()) return std::nullopt;
  return known->second;
}

void Seats::wait_at_most_until(Millis last) {
  if (away_ == 0) return;
  for (Seat& seat : seats_)
    if (seat.away) seat.away->until = std::min(seat.away->until, last);
  deadline_ = std::min(deadline_, last);
}

std::vector<int> Seats::overdue(Millis now) {
  std::vector<int> ranks;
  if (now < deadline_) return ranks;
  deadline_ = kNever;
  for (int rank = 0; rank < size(); ++rank) {
    const Seat& seat = (*this)[rank];
    if (seat.away && seat.away->until <= now) ranks.push_back(rank);
    if (seat.away && seat.away->until > now) deadline_ = std::min(deadline_, seat.away->until);
  }
  return ranks;
}

}  // namespace dtrun::rendezvous
