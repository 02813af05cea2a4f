// Signs of life of this worker. Each thread beats when it has got something done, and the agent is told twice
// a second whether there was a beat, so that the agent can tell a worker that computes for long from one that
// hangs. A worker that waits for its peers counts as alive. If a peer hangs, that peer's own agent finds it;
// if a peer has died, the process group ends the wait.
#pragma once

#include <atomic>
#include <cstdint>

namespace dtrun::worker {

class Pulse {
 public:
  // After a piece of work that takes well under a second: a microbatch, a few megabytes read or written.
  static void beat() { count_.fetch_add(1, std::memory_order_relaxed); }

  // Counts as a sign of life while it exists. The function that waits for a peer makes one itself, on
  // whichever thread, so that no caller can forget it, and that function bounds the wait.
  class WaitsForPeers {
   public:
    WaitsForPeers() { waits_.fetch_add(1, std::memory_order_relaxed); }
    ~WaitsForPeers() { waits_.fetch_sub(1, std::memory_order_relaxed); }
    WaitsForPeers(const WaitsForPeers&) = delete;
  };

  // For the reporter: differs from the last answer if there was a sign of life in between.
  static std::uint64_t read() {
    if (waits_.load(std::memory_order_relaxed) > 0) beat();
    return count_.load(std::memory_order_relaxed);
  }

 private:
  inline static std::atomic<std::uint64_t> count_{1};
  inline static std::atomic<int> waits_{0};
};

}  // namespace dtrun::worker
