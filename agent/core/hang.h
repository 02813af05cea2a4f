// Decides which workers of this node hang, from what each look at them saw. Pure. agent/health/hang_guard.h
// looks at the workers and acts on one that hangs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/vocabulary.h"
#include "proto/core/millis.h"

namespace dtrun::agent {

// The options --heartbeat_timeout, --stall_timeout and --notice_after; 0: this kind is not looked for.
struct HangSettings {
  // Workers are ended for these.
  Millis heartbeat_timeout = 0;  // a worker gave heartbeats, and then none for this long
  Millis stall_timeout = 0;      // no worker of the node wrote or used the CPU for this long
  Millis raised_timeout = 0;     // a worker wrote its error file, and then did nothing for this long
  // People are told of these.
  Millis silence_notice = 0;  // a worker gave heartbeats, and then none for this long
  Millis idle_notice = 0;     // no worker of the node wrote, used the CPU or read anything for this long
  Millis wait_notice = 0;     // a worker waits for a peer for this long

  bool ends() const { return heartbeat_timeout > 0 || stall_timeout > 0 || raised_timeout > 0; }
  bool tells() const { return silence_notice > 0 || idle_notice > 0 || wait_notice > 0; }
};

// `notice_after`: people are told of whatever lasts so long; none: of what should not last so long. The
// built-in trainer gives heartbeats and says whom it waits for, so whether its node is idle does not matter.
// `shutdown_timeout`: a worker that wrote its error file has as long to end by itself.
HangSettings hang_settings(Millis heartbeat_timeout, Millis stall_timeout, std::optional<Millis> notice_after,
                           bool builtin, Millis shutdown_timeout);

// The signs of life that one look found at a running worker.
struct LifeSigns {
  int local_rank = 0;
  std::optional<std::uint64_t> beat = {};  // changes with every sign of progress; nothing: it never gave one
  std::uint64_t output_bytes = 0;          // written so far
  Millis cpu_ms = 0;                       // used so far by its process group
  std::int64_t io_bytes = 0;               // read and written so far
  std::uint64_t processes = 0;             // changes when processes of its group come or go
  // That it has begun in this generation; nothing: it does not count them. One that has begun more than
  // another one waits for it.
  std::optional<std::uint64_t> collectives = {};
  Millis waits_ms = 0;  // so long for a peer that it knows, in the operation in hand; 0: for none
  bool raised = false;  // its error file is there
};

// A worker that has got nothing done of late.
struct QuietWorker {
  enum Why { kSilent, kIdle, kWaits };  // it gave no heartbeat; the whole node is idle; it waits for a peer
  int local_rank = 0;
  Why why = kSilent;
  Millis for_ms = 0;
  bool overdue = false;  // people are to be told
  bool operator==(const QuietWorker&) const = default;
};

struct HungWorker {
  int local_rank = 0;
  Millis silent_ms = 0;
  bool stalled = false;  // found by stall_timeout, else by heartbeat_timeout or raised_timeout
  bool raised = false;   // and so at fault
  // The node's other workers that give heartbeats have given them lately, or wait for this one: they do not
  // wait for a common third.
  bool alone = false;
  std::optional<std::uint64_t> collectives = {};  // none of this node's workers has begun fewer
};

class HangDetector {
 public:
  explicit HangDetector(HangSettings settings) : settings_(settings) {}

  // How often to look.
  Millis interval() const;

  // The workers that hang, the longest silent first. The order says little about which one is at fault:
  // workers that wait for each other all fall silent in the same moment. `held_back`: this agent does not
  // read the workers' output. They may wait for that, so their silence says nothing. A look may come late
  // because this process did not run. That time counts as one interval, and the late look finds no worker
  // hung: one that was stopped together with us has had no time to move yet.
  std::vector<HungWorker> look(const std::vector<LifeSigns>& signs, bool held_back, Millis now);

  // The workers that were quiet at the newest look, by local rank.
  std::vector<QuietWorker> quiet() const;

  // The worker was found to be a victim of another one: as good a sign of life as any.
  void waits_for_peers(int local_rank);

 private:
  struct Seen {
    LifeSigns last;
    Millis beat_at = 0;      // value of watched_ then
    Millis active_at = 0;    // the same for activity
    Millis cpu_mark = 0;     // cpu_ms at active_at
    Millis longest_gap = 0;  // between two heartbeats
    Millis moved_at = 0;     // as active_at, also by input and output
    Millis recent_at = 0;    // the same of `recent`, with which the newest signs are compared
    LifeSigns recent = {};
    bool ahead = false;  // of another worker of this node, which it waits for
    std::optional<Millis> raised_at = {};
  };

  void update(const LifeSigns& signs, bool held_back);
  void update_moved(const LifeSigns& signs, bool held_back, Seen& seen) const;
  Millis idle_for() const;
  Millis ending_for(const Seen& seen) const;
  void find_ahead();
  std::vector<HungWorker> judge() const;

  const HangSettings settings_;
  std::optional<Millis> looked_at_;
  Millis watched_ = 0;        // time under watch, without time in which this process did not run
  bool jumped_ = false;       // it did not run before the newest look
  std::map<int, Seen> seen_;  // by local rank
};

// The number of collectives that each of `hung` has begun, for a worker that is ahead of another does not
// hang; nothing if one does not count them.
std::optional<std::uint64_t> collectives_of(const std::vector<HungWorker>& hung);

// True if workers that have begun `mine` collectives wait for another node. `nodes`: the number that the
// silent workers of each node have begun; nothing: it did not say, for its workers give signs of life.
bool wait_for_another_node(std::uint64_t mine, const std::vector<std::optional<std::uint64_t>>& nodes);

// True if a worker's last lines on stderr are a Python traceback with its error: it has failed, whatever it
// waits for. An exception that was only logged reads the same where nothing was written afterwards.
bool ends_in_traceback(const std::vector<std::string>& stderr_tail);

// Chooses the workers that hang and are to be ended, by local rank, if the others go on with their state. A
// worker that waits for a peer is a victim and never chosen; nor is one whose wait is of an unknown kind
// while another one does not wait at all. Empty if all wait for peers: the one at fault is on another node.
std::vector<int> at_fault(const std::map<int, Activity>& hung);

}  // namespace dtrun::agent
