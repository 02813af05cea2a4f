// Moves ranges of device vectors between the ranks' devices, without the host's memory in between where the
// machine can. worker/reduction/exchange_plan.h plans the moves and their order.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/vector/stream.h"

namespace dtrun::worker {

// A range to or from `peer`. Those of one sender and receiver are matched in the order in which they are
// listed.
struct OutFloats {
  int peer = 0;
  const float* floats = nullptr;
  std::size_t count = 0;
};
struct InFloats {
  int peer = 0;
  float* floats = nullptr;
  std::size_t count = 0;
};

// The ranks to link, and their hosts' network, by which they find each other.
struct CommunicatorBootstrap {
  int rank = 0, size = 1;
  // Gives every rank's record to all ranks. `all`: size records of equal length, of which each rank has
  // filled in its own.
  std::function<void(std::span<std::byte> all)> all_gather;
  // Throws WorkerError(kExitWorkerPeerLost) once the generation is given up. Any thread.
  std::function<void()> check;
  std::chrono::milliseconds meeting{120000};  // until all ranks have found each other
  std::chrono::milliseconds patience{60000};  // with a silent peer
};

// Used by one thread at a time. Throws WorkerError(kExitWorkerPeerLost) once a peer is lost or the generation
// is given up; then nothing but the destructor may be called.
class DeviceCommunicator {
 public:
  // Aborts exchanges under way, in bounded time: afterwards they touch no memory. Work that was enqueued
  // behind them runs, on incomplete data.
  virtual ~DeviceCommunicator() = default;

  // [rank]: the host of the rank's device, under any unique name.
  virtual const std::vector<std::string>& hosts() const = 0;

  // Enqueues all these moves as one on `stream`. All ranks call it in the same order; a rank with nothing to
  // move may leave the call out.
  virtual void exchange(Stream& stream, std::span<const OutFloats> out, std::span<const InFloats> in) = 0;
  // Blocks until all work on `stream` is done, and reports its failure.
  virtual void wait(Stream& stream) = 0;
};

}  // namespace dtrun::worker
