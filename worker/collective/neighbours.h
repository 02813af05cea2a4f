// The other ranks on this host. This rank reads their part of an exchange where it lies: nothing is sent.
// Each rank writes to its own memory alone and maps the others' to read; counters in it say what is there.
// What a rank had announced before it was killed can still be read.
//
// A step: begin_step(); publish what is final; read what others published; end_step(). What was published
// must stay as it is until the next begin_step() returns. If that never comes it must stay for good, for a
// peer may be about to finish its step with it; SharedMemory sees to that.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/collective/shared_memory.h"

namespace dtrun::worker {

class Neighbours {
 public:
  // All ranks call it alike; blocks until they have met. `size`: floats of the vector that is exchanged, in
  // so many `buckets`. `patience`: how long a peer may say nothing.
  Neighbours(Collective& collective, std::size_t size, std::size_t buckets,
             std::chrono::milliseconds patience = kPeerPatience);
  ~Neighbours();

  // Where the vectors that are published must lie.
  SharedMemory& memory() { return memory_; }
  // Whether this rank and the peer read each other's memory. All that follows is about such peers.
  bool shares_with(int peer) const { return peers_[peer].memory != nullptr; }
  bool any() const;

  // Any thread; begin_step() and end_step() not concurrently with the others. What waits throws
  // WorkerError(kExitWorkerPeerLost) when the collective is aborted; and aborts it and throws likewise when
  // the peer's process ends or its Neighbours is destroyed, or patience ends.
  void begin_step();  // waits until nobody reads what the step before published
  void publish_partials(int bucket, std::span<const float* const> blocks);
  const float* partial(int peer, int bucket, std::size_t block);  // waits; the whole vector
  float* totals() const { return totals_.data(); }  // [size], for what publish_total() announces
  void publish_total(int bucket);
  const float* total(int peer, int bucket);  // waits; the peer's totals()
  void end_step();                           // nothing of others is read any more

 private:
  struct Board;
  struct Peer {
    std::unique_ptr<PeerMemory> memory;  // nothing: it cannot be read
    const Board* board = nullptr;
    int process = -1;  // pidfd
  };
  std::size_t board_floats() const;
  void open(Peer& peer, pid_t process, int descriptor, std::uint64_t nonce) const;
  void announce(std::atomic<std::uint32_t>& word, std::uint32_t value);
  [[noreturn]] void lose(int peer, const std::string& why);
  template <typename Ready>
  void wait_for(int peer, const Ready& ready);

  Collective& collective_;
  const std::size_t size_, buckets_;
  const std::chrono::milliseconds patience_;
  SharedMemory memory_;
  const Buffer board_memory_;
  Board& board_;
  const Buffer totals_;
  std::vector<Peer> peers_;  // [rank]
  std::uint32_t step_ = 0;   // from 1 on
};

}  // namespace dtrun::worker
