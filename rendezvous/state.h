// The coordinator as a pure state machine: who is a member, which generation they form, when it starts,
// breaks and ends. step() is told everything that happens and the time; it returns what is to be said.
// Streams, timers and threads are server.cc's.
//
// A run gathers members, then runs one generation after another. A generation breaks when a worker fails, a
// member is lost or somebody joins; then its members are told to stop, and once all have (or are gone) either
// the job ends or the next generation starts. JobEnd is said once, and nothing after it but refusals.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/admission.h"
#include "rendezvous/failures.h"
#include "rendezvous/messages.h"

namespace dtrun::rendezvous {

inline constexpr Millis kNever = std::numeric_limits<Millis>::max();

enum class Phase {
  kGathering,  // fewer members than a generation needs, or last call
  kRunning,
  kStopping,  // the generation is broken; its members were told to stop
  kOver,
};

struct Member {
  Join join;
  std::uint64_t order = 0;  // in which members joined
  Millis last_seen = 0;
  int previous_rank = -1;  // group rank in the newest generation that it took part in
  int seat = -1;           // index into State::seats, -1: not of the current generation
};

// One member's place in the current generation; seats[i] has group rank i and outlives the member.
struct Seat {
  ConnectionId member = 0;
  bool finished = false;
  bool stopped = false;
  bool gone = false;
  bool open() const { return !finished && !stopped && !gone; }
};

// Why a generation broke.
enum class Cause { kNone, kFailure, kLoss, kNewcomer, kStoppedByItself };

struct State {
  Phase phase = Phase::kGathering;
  std::optional<Settings> settings;  // none before the first Join
  std::int64_t generation = 0;
  int restarts = 0;

  std::map<ConnectionId, Member> members;
  std::uint64_t joins = 0;  // so far
  std::map<MemberId, ConnectionId> by_id;
  std::map<int, ConnectionId> by_node_rank;  // given ones only

  // Of the newest generation.
  std::shared_ptr<const Membership> membership;
  std::vector<Seat> seats;
  int open_seats = 0;
  int finished_seats = 0;
  Failures failures;
  Cause cause = Cause::kNone;
  bool lost_member = false;
  std::string why;  // reason of the next generation

  // Deadlines, kNever when not set.
  Millis join_deadline = kNever;    // gathering: no generation by then ends the job
  Millis last_call = kNever;        // gathering: the first generation starts without the rest
  Millis order_at = kNever;         // stopping: those who still run are ordered to stop
  Millis settle_deadline = kNever;  // stopping: no longer wait for the one who was told to stop to leave
  Millis sweep_at = kNever;         // nobody can be overdue before
  Millis announce_at = kNever;      // tell those who wait how many have joined
  Millis announced = -kNever;       // when that was done last
};

// Carries out what `event` and the time mean for the state. Total: any event in any state, late or malformed
// ones included, is answered or dropped. `now` must not go back.
std::vector<Action> step(State& state, const Event& event, Millis now);

// When to call step with a Tick, unless something happens before; kNever: nothing is due.
Millis next_deadline(const State& state);

}  // namespace dtrun::rendezvous
