// Which workers of this node hang: pure decisions over what was seen of them, look by look. How it is seen is
// agent/health/hang_guard.h's, what happens to a worker that hangs the driver's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::agent {

// The options --heartbeat_timeout and --stall_timeout; 0: this kind is not looked for.
struct HangSettings {
  Millis heartbeat_timeout = 0;  // a worker that reports progress, and has stopped to
  Millis stall_timeout = 0;      // no worker of the node wrote anything or used the CPU

  bool any() const { return heartbeat_timeout > 0 || stall_timeout > 0; }
};

// What one look saw of a worker that runs.
struct LifeSigns {
  int local_rank = 0;
  std::optional<std::uint64_t> beat;  // changes with every sign of progress; nothing: it never gave one
  std::uint64_t output_bytes = 0;     // written so far
  Millis cpu_ms = 0;                  // used so far by its process group
  std::uint64_t processes = 0;        // changes when processes of its group come or go
};

struct HungWorker {
  int local_rank = 0;
  Millis silent_ms = 0;
  bool stalled = false;  // by stall_timeout
};

class HangDetector {
 public:
  explicit HangDetector(HangSettings settings) : settings_(settings) {}

  // How often to look.
  Millis interval() const;

  // Those that hang, the longest silent first, which is the likeliest cause of the others' silence.
  // `held_back`: this agent itself keeps the workers waiting (it does not read their output), so their
  // silence says nothing. Looks may come late: time in which this process did not run counts as one interval,
  // and the look that ends it judges nobody, since a worker that was stopped with us had no chance to move
  // yet.
  std::vector<HungWorker> look(const std::vector<LifeSigns>& signs, bool held_back, Millis now);

 private:
  struct Seen {
    LifeSigns last;
    Millis beat_at = 0;    // of watched_
    Millis active_at = 0;  // likewise
    Millis cpu_mark = 0;   // cpu_ms at active_at
  };

  void update(const LifeSigns& signs, bool held_back);
  std::vector<HungWorker> judge() const;

  const HangSettings settings_;
  std::optional<Millis> looked_at_;
  Millis watched_ = 0;        // time under watch: `now` without what this process slept through
  std::map<int, Seen> seen_;  // by local rank
};

}  // namespace dtrun::agent
