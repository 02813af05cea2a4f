// The coordinator as a pure state machine: who is a member, which generation they form, when it starts,
// breaks and ends. step() is told everything that happens and the time; it returns what is to be said.
// Streams, timers and threads are server.cc's.
//
// A run gathers members, then runs one generation after another. A generation breaks when a worker fails, a
// member is lost or somebody joins; then its members are told to stop, and once all have (or are gone) either
// the job ends or the next generation starts. Ended is said once, and again only to members that missed it.
//
// A seat outlives its member's connection for a moment: a member that is back within kReconnectGrace takes it
// again as if nothing had happened. A coordinator that knows nothing of a generation whose members come (it
// was restarted) adopts it: all seats exist, each away until its member is back or the grace is over.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/admission.h"
#include "rendezvous/core/failures.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/restart_policy.h"

namespace dtrun::rendezvous {

inline constexpr Millis kNever = std::numeric_limits<Millis>::max();
// How long a seat waits for a member whose connection broke: an agent that lives tries again at once, so this
// is a round trip or two. One that died holds its peers up for as long.
inline constexpr Millis kReconnectGrace = 300;
// At most so long while the generation is being stopped anyway.
inline constexpr Millis kReturnWhileStopping = 3000;
// Before a silent member is given up, the coordinator listens for so long: it may itself have been stopped,
// or starved, while what the member said was waiting to be read.
inline constexpr Millis kHearOut = 200;
// Of JobEnd::followers. All nodes hear of all of them, so without a limit they would be too many to say.
inline constexpr std::size_t kMaxFollowers = 64;

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
  Heartbeat report;        // the newest
  Millis overdue_at = -1;  // when its silence was noticed; of an earlier silence if before last_seen
};

// One member's place in the current generation; seats[i] has group rank i and outlives the member.
struct Seat {
  ConnectionId member = 0;  // 0 while away, or gone
  bool finished = false;
  bool stopped = false;
  bool gone = false;
  Millis away_until = kNever;  // not kNever: its connection broke, and it may come back until then
  std::string how_lost;        // away: what will be said of it if it doesn't come back
  bool open() const { return !finished && !stopped && !gone; }
  bool away() const { return away_until != kNever; }
};

// Why a generation broke.
enum class Cause { kNone, kFailure, kLoss, kNewcomer, kStoppedByItself };

struct State {
  Phase phase = Phase::kGathering;
  std::optional<Settings> settings;  // none before the first Join
  std::int64_t generation = 0;
  std::int64_t newest_seen = 0;  // that any member came with: the next one is newer still
  RestartPolicy policy;
  int membership_changes = 0;

  std::map<ConnectionId, Member> members;
  std::uint64_t joins = 0;      // so far
  std::set<MemberId> ever_met;  // who may ask for the result after the end
  std::map<MemberId, ConnectionId> by_id;
  std::map<int, ConnectionId> by_node_rank;  // given ones only

  // Of the newest generation.
  std::shared_ptr<Membership> membership;
  bool adopted = false;  // its nodes are known only as far as their members have come back
  Millis started_at = 0;
  std::int64_t step = 0;  // that its workers got to, as far as they said
  std::vector<Seat> seats;
  int open_seats = 0;
  int finished_seats = 0;
  int away_seats = 0;
  std::map<MemberId, int> away;  // seats by member, where that is known
  bool newcomer = false;         // somebody joined since and may be taken in
  Failures failures;
  Cause cause = Cause::kNone;
  bool lost_member = false;
  std::string why;                       // reason of the next generation
  bool worker_failure = false;           // a worker failure is that reason
  std::shared_ptr<const JobEnd> result;  // once over

  // Deadlines, kNever when not set.
  Millis join_deadline = kNever;    // gathering: no generation by then ends the job
  Millis last_call = kNever;        // gathering: the first generation starts without the rest
  Millis order_at = kNever;         // stopping: those who still run are ordered to stop
  Millis settle_deadline = kNever;  // stopping: no longer wait for the one who was told to stop to leave
  Millis restart_at = kNever;       // gathering: back-off before the next generation
  Millis sweep_at = kNever;         // nobody can be overdue before
  Millis away_at = kNever;          // no away seat is given up before
  Millis announce_at = kNever;      // tell those who wait how many have joined
  Millis announced = -kNever;       // when that was done last
};

// Carries out what `event` and the time mean for the state. Total: any event in any state, late or malformed
// ones included, is answered or dropped. `now` must not go back.
std::vector<Action> step(State& state, const Event& event, Millis now);

// When to call step with a Tick, unless something happens before; kNever: nothing is due.
Millis next_deadline(const State& state);

}  // namespace dtrun::rendezvous
