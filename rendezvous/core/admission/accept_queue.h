// AcceptQueue decides which connections from unknown peers may begin a handshake, and which ones are closed,
// so that unauthenticated peers cost little however many they are. A connection waits until it has sent a TLS
// hello, then until its turn comes: sources (addresses) take turns, and only a few handshakes go on at once.
// A source with many failed handshakes may begin only some a second. The same limit holds for all sources
// together from which no handshake ever succeeded: each handshake costs a millisecond of a processor. A
// handshake that succeeded no longer counts. While some of theirs fail, only few of these sources have one at
// a time: on a processor that others use too, a member's handshake would wait behind theirs. Members mark
// their hello, which unauthenticated peers can imitate: the members' queue has a turn of its own, whatever
// the address, as long as few of its handshakes fail. If too many connections wait, the queue closes those
// that are most likely to be useless; if there are none, new connections stay in the kernel's backlog for a
// while. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

class AcceptQueue {
 public:
  using Id = std::uint64_t;

  struct Limits {
    std::size_t waiting = 1024;     // connections before their handshake
    std::size_t handshaking = 256;  // at once; a quarter of them is not for strange sources
    Millis to_greet = 5000;         // from its arrival
    Millis to_begin = 10000;        // from its arrival; an agent waits no longer
    Millis to_prove = 5500;         // from the beginning of its handshake
    int failures = 100;             // of one source, or of members from everywhere, that are free;
    int failures_per_second = 20;   // and then
    int strange_failures = 200;     // the same, of all sources together that no handshake succeeded from
    int strange_failures_per_second = 50;
    std::size_t strange_at_once = 16;  // handshakes of strange sources, while some of these fail

    // Limits that fit into `files` open files: a handshake takes two, and one is kept for a new connection
    // that replaces a waiting one. At least one handshake and two waiting connections, at most the defaults
    // above.
    static Limits within(std::size_t files);
  };
  explicit AcceptQueue(const Limits& limits) : limits_(limits) {}

  // True if no room is left and no waiting connection may be closed for a new one: do not accept now.
  bool is_full(Millis now) const { return waiting_.size() >= limits_.waiting && !who_goes(now); }
  // Returns the connection to close to make room, if any: the one that waits longest of a strange source
  // whose handshakes fail, or of those that have not said hello, or of a source that has more than an equal
  // share; of such sources, the one that has most. REQUIRES: !is_full(now).
  std::optional<Id> arrived(Id id, const std::string& source, Millis now);
  // `member`: it said that it is one.
  void greeted(Id id, bool member, Millis now);
  // It is gone, or was closed, before its handshake began. Unknown ones are ignored, here and below.
  void left(Id id);

  // Those whose handshake begins now, in this order.
  std::vector<Id> take_next(Millis now);
  void proven(Id id);
  void failed(Id id, Millis now);

  // The connections that have waited too long; to be closed. A handshake that takes too long counts as
  // failed, and its caller ends it.
  std::vector<Id> take_expired(Millis now);
  Millis next_deadline(Millis now) const;  // kNever (deadlines.h) if there is none

  bool is_handshaking(Id id) const { return handshaking_.contains(id); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t handshaking() const { return handshaking_.size(); }
  std::size_t sources() const { return sources_.size(); }

 private:
  struct Waiting {
    std::string source;
    Millis since = 0;
    std::string turn;  // its source, or the members'
    bool greeted = false;
  };
  struct Handshake {
    std::string source, turn;
    Millis until = 0;
    bool strange = false;  // its source was not known when it began
  };
  struct Failures {
    double count = 0;       // not forgiven yet
    Millis counted_at = 0;  // up to then
  };
  struct Source {
    std::size_t waiting = 0, silent = 0, handshaking = 0;  // silent: those of the waiting that said no hello
    std::deque<Id> ready;                                  // some of them may have left since
    Failures failures;
    bool known = false;  // a handshake from there has succeeded, or it is the members'
  };

  std::optional<Id> who_goes(Millis now) const;
  double failures_of(const Source& source, Millis now) const;
  double strange_failures(Millis now) const;
  std::size_t most_strange(Millis now) const;
  bool may_begin(const Source& source, Millis now) const;
  std::optional<Id> take_from(Source& source);
  // Takes it out, however it ended.
  Handshake end_handshake(std::map<Id, Handshake>::iterator handshake);
  void forget_idle(const std::string& name);

  const Limits limits_;
  std::map<Id, Waiting> waiting_;  // ids grow: the first has waited longest
  std::map<Id, Handshake> handshaking_;
  std::map<std::string, Source> sources_;  // one of them is no address: that of members
  std::string last_;                       // the source whose turn it was
  std::set<std::string> known_;            // the sources that are
  Failures strange_;                       // of those that are not
  std::size_t strange_handshaking_ = 0;
};

}  // namespace dtrun::rendezvous
