// Moves ranges of device vectors between the ranks' devices, without the host's memory in between where the
// machine can. What is moved, and when, is planned in worker/reduction/exchange_rounds.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/vector/stream.h"

namespace dtrun::worker {

// To or from `peer`. Of one sender and receiver, they are matched in the order in which they are listed.
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

// The ranks between which links are to be made, and the network of their hosts by which they find each other.
struct LinkPeers {
  int rank = 0, size = 1;
  // `all`: size records of equal length, of which each rank has filled in its own: gives all to all.
  std::function<void(std::span<std::byte> all)> all_gather;
  // Throws WorkerError(kExitWorkerPeerLost) once the generation is given up. Any thread.
  std::function<void()> check;
  std::chrono::milliseconds meeting{120000};  // until all have found each other
  std::chrono::milliseconds patience{60000};  // with a peer that is silent
};

// Used by one thread at a time. Throws WorkerError(kExitWorkerPeerLost) once a peer is lost or the generation
// is given up; then nothing but the destructor may be called.
class DeviceLinks {
 public:
  // Gives up what is under way: afterwards nothing of it touches any memory. Whatever was enqueued behind it
  // runs, on half of what it needs. In bounded time.
  virtual ~DeviceLinks() = default;

  // [rank]: the host of its device, named somehow.
  virtual const std::vector<std::string>& hosts() const = 0;

  // All these as one, behind what is on `stream`. All ranks call it in the same order, and those that have
  // nothing to move need not.
  virtual void exchange(Stream& stream, std::span<const OutFloats> out, std::span<const InFloats> in) = 0;
  // In place, in the library's own order of additions. All ranks.
  virtual void all_reduce_sum(Stream& stream, float* values, std::size_t count) = 0;
  // Blocks until all that is on `stream` is done, and has done what it should.
  virtual void wait(Stream& stream) = 0;
};

}  // namespace dtrun::worker
