// In which order a device does what it is told: work on one stream is done one after the other, work on
// different streams at the same time, unless an event orders it. On the CPU every call is done when it
// returns, events are empty, and nothing of this costs anything.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::worker {

class Stream;

// All work that was enqueued on `stream` up to some moment. Empty: work that is done. May be copied; good as
// long as the stream lives.
struct Event {
  std::uint64_t ticket = 0;  // counted by the stream, ascending
  const Stream* stream = nullptr;
};

// Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;  // REQUIRES: nothing is left to do on it
  // What is enqueued here so far.
  virtual Event record() = 0;
  // What is enqueued here from now on begins once `event` is done. `event` may be of any stream of the same
  // device. Does not block.
  virtual void after(const Event& event) = 0;
  // What people call it who look at a profile.
  virtual void set_name(const std::string&) {}
  // Blocks until all that is enqueued here is done. Throws WorkerError if the device failed.
  virtual void wait() = 0;
};

}  // namespace dtrun::worker
