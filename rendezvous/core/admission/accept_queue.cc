#include "rendezvous/core/admission/accept_queue.h"

#include <algorithm>

namespace dtrun::rendezvous {

AcceptQueue::Limits AcceptQueue::Limits::within(std::size_t files, const Times& times) {
  const std::size_t places = std::max<std::size_t>(files / 4, 1);
  const std::size_t left = files - std::min(files, 2 * places + 1);
  return {.waiting = std::max<std::size_t>(left, 2),
          .places = places,
          .to_greet = times.hello.count(),
          .to_prove = times.first_call.count()};
}

std::optional<AcceptQueue::Id> AcceptQueue::arrived(Id id, Millis now) {
  std::optional<Id> goes;
  if (waiting_.size() >= limits_.waiting) {
    const auto silent =
        std::ranges::find_if(waiting_, [](const auto& entry) { return !entry.second.greeted; });
    goes = (silent != waiting_.end() ? silent : waiting_.begin())->first;
    waiting_.erase(*goes);
  }
  waiting_.emplace(id, Waiting{.since = now});
  return goes;
}

void AcceptQueue::greeted(Id id) {
  const auto found = waiting_.find(id);
  if (found != waiting_.end()) found->second.greeted = true;
}

std::optional<AcceptQueue::Id> AcceptQueue::next() const {
  const auto ready = std::ranges::find_if(waiting_, [](const auto& entry) { return entry.second.greeted; });
  return ready != waiting_.end() ? std::optional(ready->first) : std::nullopt;
}

AcceptQueue::Turn AcceptQueue::take_turn(Millis now) {
  Turn turn;
  const auto close = [&](Id id) {
    turn.close.push_back(id);
    count_failure();
  };
  std::erase_if(waiting_, [&](const auto& entry) {
    const bool late = !entry.second.greeted && now >= entry.second.since + limits_.to_greet;
    if (late) close(entry.first);
    return late;
  });
  std::erase_if(places_, [&](const Place& place) {
    const bool late = !place.failed && now >= place.since + limits_.to_prove;
    if (late) close(place.id);
    return late || (place.failed && now >= place.since + kPlaceTime);
  });
  while (const auto id = next()) {
    if (places_.size() >= limits_.places) {
      const Place& oldest = places_.front();
      if (!is_flooded() || now < oldest.since + kPlaceTime) break;
      close(oldest.id);
      places_.pop_front();
    }
    waiting_.erase(*id);
    places_.push_back({.id = *id, .since = now});
    turn.begin.push_back(*id);
  }
  return turn;
}

void AcceptQueue::count_failure() { failures_ = std::min(failures_ + 1, limits_.places); }

void AcceptQueue::proven(Id id) {
  if (!is_handshaking(id)) return;
  std::erase_if(places_, [&](const Place& place) { return place.id == id; });
  if (failures_ > 0) --failures_;
}

void AcceptQueue::failed(Id id) {
  const auto found = std::ranges::find(places_, id, &Place::id);
  if (found == places_.end() || found->failed) return;
  found->failed = true;
  count_failure();
}

bool AcceptQueue::is_handshaking(Id id) const {
  const auto found = std::ranges::find(places_, id, &Place::id);
  return found != places_.end() && !found->failed;
}

// Looks twice a second for those that are late, and more often for a free place: no list by deadline is
// needed.
Millis AcceptQueue::next_deadline(Millis now) const {
  constexpr Millis kLook = 500, kLookForPlaces = 50;
  if (waiting_.empty() && places_.empty()) return kNever;
  return now + (next() ? kLookForPlaces : kLook);
}

}  // namespace dtrun::rendezvous
