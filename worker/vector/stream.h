// The order of a device's work: work on one stream is done in order, work on different streams at the same
// time unless an event orders it. On the CPU every call is done when it returns, events are empty, and
// streams cost nothing.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::worker {

class Stream;

// All work that was enqueued on `stream` up to some moment. Empty: work that is done. May be copied; valid as
// long as the stream lives.
struct Event {
  std::uint64_t ticket = 0;  // counted by the stream, ascending
  const Stream* stream = nullptr;
};

// Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;  // REQUIRES: no work is left on it
  // The work enqueued here so far.
  virtual Event record() = 0;
  // Makes work that is enqueued here from now on wait for `event`, an event of any stream of the same device.
  // Does not block.
  virtual void after(const Event& event) = 0;
  // Names the stream in profiles.
  virtual void set_name(const std::string&) {}
  // Blocks until all work that is enqueued here is done. Throws WorkerError if the device failed.
  virtual void wait() = 0;
};

}  // namespace dtrun::worker
