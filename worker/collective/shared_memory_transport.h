// The other ranks on this host. This rank reads their part of an exchange from their memory: nothing is sent.
// Each rank writes only to its own memory and maps the others' for reading; counters in the memory announce
// what is complete. The data that a rank announced before it was killed can still be read.
//
// A step: begin_step(); publish final data; read the others' data; end_step(). Published data must not change
// until the next begin_step() returns. If there is no next step, the data must stay for good, since a peer
// may be about to finish its step with it; SharedMemory ensures that.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/base/operation_log.h"
#include "worker/collective/process_group.h"
#include "worker/collective/shared_memory.h"

namespace dtrun::worker {

class SharedMemoryTransport {
 public:
  // Called on all ranks; blocks until they have met. `size`: floats of the vector that is exchanged, in so
  // many `buckets`. `patience`: the time that a peer may be silent.
  SharedMemoryTransport(ProcessGroup& group, std::size_t size, std::size_t buckets,
                        std::chrono::milliseconds patience = kPeerPatience);
  ~SharedMemoryTransport();

  // The memory that published vectors must be allocated from.
  SharedMemory& memory() { return memory_; }
  // Whether this rank and the peer read each other's memory. The functions below are about such peers.
  bool shares_with(int peer) const { return peers_[peer].memory != nullptr; }
  bool any() const;
  // [rank]: the rank's host, under any unique name, the same on all ranks. Ranks that share memory share a
  // host.
  const std::vector<std::string>& hosts() const { return hosts_; }

  // Any thread; begin_step() and end_step() not concurrently with the others. A function that waits throws
  // WorkerError(kExitWorkerPeerLost) when the process group is aborted; when the peer's process ends, its
  // SharedMemoryTransport is destroyed, or patience ends, it aborts the process group and throws the same.
  void begin_step();  // waits until no rank reads the previous step's data
  void publish_partials(int bucket, std::span<const float* const> blocks);
  const float* partial(int peer, int bucket, std::size_t block);  // waits; the peer's whole vector
  float* totals() const { return totals_.data(); }  // [size], the memory that publish_total() announces
  void publish_total(int bucket);
  const float* total(int peer, int bucket);  // waits; the peer's totals()
  void end_step();                           // this rank reads the others' data no more

 private:
  struct Board;
  struct SharedPeer {
    std::unique_ptr<PeerMemory> memory;  // null: it cannot be read
    const Board* board = nullptr;
    int process = -1;  // pidfd
  };
  std::size_t board_floats() const;
  void open(SharedPeer& peer, pid_t process, int descriptor, std::uint64_t nonce) const;
  void announce(std::atomic<std::uint32_t>& word, std::uint32_t value);
  [[noreturn]] void lose(int peer, const std::string& why);
  template <typename Ready>
  void wait_for(int peer, const Operation& what, const Ready& ready);

  ProcessGroup& group_;
  const std::size_t size_, buckets_;
  const std::chrono::milliseconds patience_;
  SharedMemory memory_;
  const Buffer board_memory_;
  Board& board_;
  const Buffer totals_;
  std::vector<SharedPeer> peers_;   // [rank]
  std::vector<std::string> hosts_;  // [rank]
  std::uint32_t step_ = 0;          // from 1 on
};

}  // namespace dtrun::worker
