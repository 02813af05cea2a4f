// Elects the coordinator among the hosts that may be it. A pure state machine, one on each of these hosts;
// drivers carry its messages. Each host has one vote. A leader needs the votes of a majority, its own
// included, and has to renew them: a vote binds the voter for `lease`, and the leader counts it for the
// shorter `held`, from the time when it asked. Each host uses its own clock, and no two clocks are compared.
// So a leader that is cut off, or was stopped, has stepped down before another one can begin.
//
// Votes and terms are in memory only. A restarted host gives no new vote for `abstain`, since one from before
// its restart may still bind it. The record holds the facts that every later leader must know: the leader
// adds to it, and acts on an addition once a majority has it. A new leader merges the records of its voters,
// whatever their age: a host that forgot its vote may have let a lower term come after a higher one. So a
// record that a majority has is lost only if all of these hosts lose their memory.
//
// A host first asks whether the others would vote for it (a pre-vote). A pre-vote binds no voter, so a host
// that cannot be answered does not disturb the others.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::rendezvous::election {

// A leader's number. Later ones are higher, and no two hosts have the same: it is round * hosts + place.
using Term = std::int64_t;

// A host believes a term from a member up to this far above the highest it has heard. No job has so many
// elections: a higher term is an error, and later leaders would soon run out of numbers.
inline constexpr Term kFurthest = Term{1} << 20;

// Merges the texts of two records into one that has all entries of both.
using Merge = std::string (*)(const std::string& one, const std::string& other);

struct Settings {
  int hosts = 3;       // that may lead, in the order of the list
  int self = 0;        // this host's place in it
  int needed = 2;      // votes, its own included
  Millis lease = 600;  // a vote binds its voter for this long
  Millis held = 540;   // the leader counts a vote for this long
  // 0 if no process of the job ran on this host before, so that it cannot have voted.
  Millis abstain = 600;
  Millis renew = 150;   // between a leader's asks
  Millis retry = 50;    // between a candidate's asks
  Millis stagger = 50;  // added for each place in the list: earlier hosts go first
  // A voter waits so much longer at most before it stands against a leader whose asks come irregularly, as
  // from a loaded machine, and for so long after it saw that last.
  Millis most_patience = 1500, remembers = 30000;
  Merge merge = nullptr;
};

// A majority of `hosts` is needed; with `alone` one of them is enough (the two halves of a cut network then
// both go on, until they hear of each other).
Settings settings_for(int hosts, int self, bool alone, Merge merge);

struct RecordVersion {
  Term term = 0;
  std::int64_t version = 0;
  auto operator<=>(const RecordVersion&) const = default;
};
struct Record {
  RecordVersion record_version;
  std::string text;  // means nothing here; empty: nothing is known yet
  bool operator==(const Record&) const = default;
};
struct Leader {
  Term term = 0;  // 0: none is known
  int host = -1;
  bool operator==(const Leader&) const = default;
};

// ---- what hosts say to each other

struct VoteRequest {
  enum Kind : int {
    kPreVote,      // would you vote for me?
    kRequestVote,  // do
    kRenew,        // I lead: go on
    kStepDown,     // I lead no more, and you are free; not answered
  };
  Kind kind = kPreVote;
  Term term = 0;
  Millis sent_at = 0;                 // by the asker's clock; comes back in the answer
  bool serves = false;                // kRenew: a majority has its record
  std::optional<Record> record = {};  // kRenew, kStepDown: set if the host does not have it
  bool operator==(const VoteRequest&) const = default;
};
struct VoteReply {
  VoteRequest::Kind kind = VoteRequest::kPreVote;  // of the ask
  Term term = 0;                                   // of the ask
  Millis sent_at = 0;                              // of the ask
  bool granted = false;
  Term newest = 0;                    // that the voter knows
  RecordVersion record_version = {};  // of the voter's record
  std::optional<Record> record = {};  // kRequestVote: the voter's
  bool operator==(const VoteReply&) const = default;
};

// ---- events

struct Tick {};
struct Write {  // by the leader of that term: its record's text from now on. Ignored unless it serves
  Term term = 0;
  std::string text;
};
struct ObservedTerm {  // of a leader's term, from members; believed as far as kFurthest
  Term term = 0;
};
struct Resign {  // as the leader of that term, whose lease was found to be over before step() saw it
  Term term = 0;
};
struct Retire {};  // this host will end: another one may lead at once

struct Event {
  int from = -1;  // a host, of VoteRequest and VoteReply
  std::variant<Tick, VoteRequest, VoteReply, Write, ObservedTerm, Resign, Retire> body;
};

// ---- actions

struct BecomeLeader {  // from now on this host is the leader
  Term term = 0;
  std::string record;  // its predecessors' record
  // No other host has served since this host did, and this host was not told to forget.
  bool again = false;
};
struct Written {  // a majority has this version
  std::int64_t version = 0;
};
struct StepDown {};  // at once: it leads no more
struct Forget {};    // another host serves: what this host kept as the leader is stale

struct Action {
  int to = -1;  // a host, of VoteRequest and VoteReply
  std::variant<VoteRequest, VoteReply, BecomeLeader, Written, StepDown, Forget> body;
};

struct Peer {
  std::optional<Millis> granted;  // when the ask was sent that it granted last, in this term
  RecordVersion record_version;   // of the record that it has, as far as is known
};

struct State {
  enum Role { kFollower, kPreCandidate, kCandidate, kLeader };

  Settings settings;
  Role role = kFollower;
  Term newest = 0;  // heard of
  Record record;

  // As a voter: the host to which its vote is bound, until when, and until when older votes may still bind
  // it.
  int bound_to = -1;
  Term bound_term = 0;
  Millis bound_until = 0;
  Millis abstains_until = 0;
  Leader leader;          // that serves, as far as known; none after bound_until
  Millis renewed_at = 0;  // it asked last; 0: it has not yet
  Millis patience = 0;    // with it: twice the longest delay of its asks of late
  Millis delayed_at = 0;  // when that was

  // As a candidate or the leader.
  Term term = 0;
  std::vector<Peer> peers;  // by host
  bool serves = false;
  Term served = 0;  // the last term in which it did, until another host does
  bool retired = false;
  std::int64_t written = 0;  // version that a majority has
  Millis stands_at = 0;      // follows: when it will want to lead
  Millis asks_at = 0;        // else: when to ask again
  Millis tries_until = 0;    // probes, asks
};

State begin(const Settings& settings, Millis now);

// Total. `now` must not go back.
std::vector<Action> step(State& state, const Event& event, Millis now);

Millis next_deadline(const State& state);

// Until when this host may act as the leader; 0 if it is none. Only step() makes it later.
Millis leads_until(const State& state);

// The host that serves as the leader, as far as this host knows at `now`.
Leader known_leader(const State& state, Millis now);

}  // namespace dtrun::rendezvous::election
