// AcceptQueue decides which connections may begin a TLS handshake, and which ones are closed, so that
// unauthenticated peers cost little however many they are. A connection waits until it has sent a TLS hello,
// then until one of a few places is free. A handshake that succeeds gives its place back at once. A failed
// one keeps it for two seconds from its beginning, which bounds the processor time: each costs a millisecond
// or two. If too many connections wait, new ones stay in the kernel's backlog for a while, as when thousands
// of nodes join at once. While more handshakes fail than succeed, the oldest waiting connection is closed
// instead, and the oldest handshake after two seconds. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/core/millis.h"
#include "proto/core/times.h"

namespace dtrun::rendezvous {

class AcceptQueue {
 public:
  using Id = std::uint64_t;

  // From the beginning of a handshake: a failed one keeps its place for so long.
  static constexpr Millis kPlaceTime = 2000;

  struct Limits {
    std::size_t waiting = 255;  // connections before their handshake
    std::size_t places = 128;   // for handshakes
    Millis to_greet = Times().hello.count(), to_prove = Times().first_call.count();

    // Limits that fit into `files` open files: a handshake takes two, and one is kept for a new connection
    // that replaces a waiting one. At least one place and two waiting connections.
    static Limits within(std::size_t files, const Times& times = {});
  };
  explicit AcceptQueue(const Limits& limits) : limits_(limits) {}

  // True if no room is left and no waiting connection may be closed for a new one: do not accept now.
  bool is_full() const { return waiting_.size() >= limits_.waiting && !is_flooded(); }
  // Returns the connection to close to make room, if any: the oldest that has not said hello, else the
  // oldest. REQUIRES: !is_full(), and ids that grow.
  std::optional<Id> arrived(Id id, Millis now);
  void greeted(Id id);
  // It is gone, or was closed, before its handshake began. Unknown ones are ignored, here and below.
  void left(Id id) { waiting_.erase(id); }

  struct Turn {
    std::vector<Id> close, begin;  // a handshake; in this order
  };
  Turn take_turn(Millis now);
  void proven(Id id);
  void failed(Id id);

  Millis next_deadline(Millis now) const;  // kNever (deadlines.h) if there is none
  bool is_handshaking(Id id) const;
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t places_taken() const { return places_.size(); }

 private:
  struct Waiting {
    Millis since = 0;
    bool greeted = false;
  };
  struct Place {
    Id id = 0;
    Millis since = 0;
    bool failed = false;
  };

  bool is_flooded() const { return failures_ > limits_.places / 2; }
  void count_failure();
  std::optional<Id> next() const;

  const Limits limits_;
  std::map<Id, Waiting> waiting_;  // the first has waited longest
  std::deque<Place> places_;       // those that are taken, the oldest first
  std::size_t failures_ = 0;       // less the successes; from 0 to the number of places
};

}  // namespace dtrun::rendezvous
