// A copy of a replica's state that outlives this process, in memory that the agent holds
// (in_memory_checkpoint_file.h). A thread makes the copy while the next gradient is computed, so training
// only waits before the next update if the copy is not done by then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "worker/base/buffer.h"
#include "worker/metrics/metrics.h"
#include "worker/trainer/recovery/in_memory_checkpoint_file.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

struct Replica;

class InMemoryCheckpoint {
 public:
  // Takes ownership of the agent's descriptor. If the file has a copy of this job, the replica restores it,
  // and then has values. Throws WorkerError, EX_IOERR, if there is no memory: the job can do without the
  // copy.
  InMemoryCheckpoint(Replica& replica, int descriptor);
  ~InMemoryCheckpoint();  // waits
  InMemoryCheckpoint(const InMemoryCheckpoint&) = delete;

  // Begins to copy the present state, unless it has diverged. The replica's vectors must not change until
  // wait() has returned. REQUIRES: wait() was called since the last start().
  // `generation`: the one that computed it.
  void start(std::int64_t generation);
  // Blocks until the replica's vectors may change. Rethrows an exception of the copying thread, after a
  // failure of the device.
  void wait();
  std::size_t bytes() const { return file_.memory().size_bytes(); }  // of the host's memory

 private:
  struct Record {
    std::int64_t generation = 0;
    MetricsLog log;
  };
  void take_over();
  void run();
  void copy(Stream& stream);
  void has_read();

  Replica& replica_;
  InMemoryCheckpointFile file_;
  const Buffer pin_;  // pins its memory for the device

  std::mutex mutex_;  // guards the members below, without the thread
  std::condition_variable changed_;
  bool reading_ = false;  // the replica's vectors
  bool copying_ = false, closing_ = false;
  std::int64_t step_ = 0;  // of the state to be copied, as the next two
  Record record_;
  Event updated_;
  std::exception_ptr failure_;

  std::thread thread_;  // last: the thread uses all of the above
};

}  // namespace dtrun::worker
