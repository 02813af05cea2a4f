// Signs of life of this worker, which its agent is told twice a second: each thread that gets something done
// beats, so that a worker that computes for long is told from one that hangs. A worker that waits for its
// peers is alive too: whichever of them hangs is its own agent's to find, and one that vanished ends the
// wait.
#pragma once

#include <atomic>
#include <cstdint>

namespace dtrun::worker {

class Pulse {
 public:
  // After a piece of work that takes well under a second: a microbatch, a few megabytes read or written.
  static void beat() { count_.fetch_add(1, std::memory_order_relaxed); }

  // Around the main thread's waits for peers, which the collective bounds.
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
