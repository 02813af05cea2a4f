// Who leads among the hosts that may: which of them is the coordinator. A pure state machine, one on each of
// these hosts; drivers carry what they say to each other. Each host has one vote, and who leads needs those
// of a majority, his own included, again and again: a vote binds who gave it for `lease`, and who has it
// counts it for the shorter `held` from when he asked. Each counts on his own clock, and no two clocks are
// compared. So a leader that is cut off, or stood still, has stopped before another one can begin.
//
// Votes and terms are in memory. A host that was started gives its vote to nobody new for as long as one
// could bind it that it gave before (`abstain`). What every later leader has to know is the record: the
// leader adds to it, and acts on what it added once a majority has it. A new leader merges the records of
// those who vote for it, whatever their age: a host that forgot its vote may have let a lower term come after
// a higher one. So what a majority had is lost only with the memory of all of them.
//
// First a host asks who would vote for it, which binds nobody: one that nobody can answer disturbs nobody.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/core/deadlines.h"

namespace dtrun::rendezvous::succession {

// A leader's number. Later ones are higher, and no two hosts have the same: it is round * hosts + place.
using Term = std::int64_t;

// So far above what a host has heard of a member's word is believed, once. Nobody has led so often: one that
// says more is out of its mind, and all who lead after it would soon have no higher number left.
inline constexpr Term kFurthest = Term{1} << 20;

// Of two texts of a record one that has what either has.
using Merge = std::string (*)(const std::string& one, const std::string& other);

struct Settings {
  int hosts = 3;       // that may lead, in the order of the list
  int self = 0;        // this host's place in it
  int needed = 2;      // votes, its own included
  Millis lease = 600;  // for so long a vote binds who gave it
  Millis held = 540;   // and so long it is counted by who has it
  // 0 where this host cannot have given a vote before: nobody of the job was here.
  Millis abstain = 600;
  Millis renew = 150;   // between a leader's asks
  Millis retry = 50;    // between those of who wants to lead
  Millis stagger = 50;  // for each place in the list: those before it go first
  Merge merge = nullptr;
};

// Of `hosts` a majority is needed; with `alone` one of them is enough (the two halves of a cut network then
// both go on, until they hear of each other).
Settings settings_for(int hosts, int self, bool alone, Merge merge);

struct Stamp {
  Term term = 0;
  std::int64_t version = 0;
  auto operator<=>(const Stamp&) const = default;
};
struct Record {
  Stamp stamp;
  std::string text;  // means nothing here; empty: nothing is known yet
  bool operator==(const Record&) const = default;
};
struct Leader {
  Term term = 0;  // 0: none is known
  int host = -1;
  bool operator==(const Leader&) const = default;
};

// ---- what hosts say to each other

struct Ask {
  enum Kind : int {
    kProbe,    // would you vote for me?
    kVote,     // do
    kRenew,    // I lead: go on
    kRelease,  // I lead no more, and you are free; not answered
  };
  Kind kind = kProbe;
  Term term = 0;
  Millis sent_at = 0;                 // by the asker's clock; comes back in the answer
  bool serves = false;                // kRenew: a majority has its record
  std::optional<Record> record = {};  // kRenew, kRelease: for a host that does not have it
  bool operator==(const Ask&) const = default;
};
struct Answer {
  Ask::Kind kind = Ask::kProbe;  // of the ask
  Term term = 0;                 // likewise
  Millis sent_at = 0;            // likewise
  bool granted = false;
  Term newest = 0;                    // that the voter knows
  Stamp stamp = {};                   // of the voter's record
  std::optional<Record> record = {};  // kVote: the voter's
  bool operator==(const Answer&) const = default;
};

// ---- events

struct Tick {};
struct Write {  // by the leader of that term: its record's text from now on. Ignored unless it serves
  Term term = 0;
  std::string text;
};
struct Heard {  // of a leader's term, from members; believed as far as kFurthest
  Term term = 0;
};
struct Resign {  // as the leader of that term, whose lease was found to be over before step() saw it
  Term term = 0;
};
struct Retire {};  // this host will end: another one may lead at once

struct Event {
  int from = -1;  // a host, of Ask and Answer
  std::variant<Tick, Ask, Answer, Write, Heard, Resign, Retire> body;
};

// ---- actions

struct Lead {  // from now on this host is the leader
  Term term = 0;
  std::string record;  // what those before it left
  // Nobody else has served since this host did, and it was not told to forget.
  bool again = false;
};
struct Written {  // a majority has this version
  std::int64_t version = 0;
};
struct StepDown {};  // at once: it leads no more
struct Forget {};    // another one serves: what this host kept as the leader is old

struct Action {
  int to = -1;  // a host, of Ask and Answer
  std::variant<Ask, Answer, Lead, Written, StepDown, Forget> body;
};

struct Peer {
  std::optional<Millis> granted;  // when it was asked for what it granted last, in this term
  Stamp stamp;                    // of the record that it has, as far as is known
};

struct State {
  enum Role { kFollows, kProbes, kAsks, kLeads };

  Settings settings;
  Role role = kFollows;
  Term newest = 0;  // heard of
  Record record;

  // As a voter: to whom it is bound, and until when; and until when it may still be bound to others.
  int bound_to = -1;
  Term bound_term = 0;
  Millis bound_until = 0;
  Millis abstains_until = 0;
  Leader leader;  // who serves, as far as known; none after bound_until

  // As one who wants to lead, or does.
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

// Who serves as the leader, as far as is known here at `now`.
Leader known_leader(const State& state, Millis now);

}  // namespace dtrun::rendezvous::succession
