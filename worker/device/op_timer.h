// When each operation of a device ran that computes behind the host's back, by that device's own clock; for
// who wants to know where time goes (worker/profile/). Lanes that compute on their own threads tell it
// themselves (node_clock.h).
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// What a machine can do at best, measured: the yardstick for what a job does on it.
struct Ceilings {
  double flops = 0;  // a second, of matrix products
  double bytes = 0;  // a second, read and written
};

// What an operation does at least.
struct OpCost {
  double flops = 0;
  double read_bytes = 0, written_bytes = 0;  // of the device's memory
};

// Operations that do the same at different times, or for different nodes of a program.
struct OpKind {
  std::string what;  // "Linear 768 -> 3072 + GELU", "AdamW"
  std::string part;  // "forward", "weight gradient"; empty for what belongs to no node
  bool operator==(const OpKind&) const = default;
};

struct TimedOp {
  OpKind kind;
  int node = -1;  // of the program; -1: of none
  OpCost cost;
};

struct OpTime {
  int op = 0, stream = 0;     // of OpTimes
  double begin = 0, end = 0;  // seconds since the first start()
};

struct OpTimes {
  std::vector<TimedOp> ops;
  std::vector<std::string> streams;  // their names: "lane"
  std::vector<OpTime> times;
};

// Used by one thread, while nobody enqueues anything.
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  // From now on the device's lanes enqueue each operation by itself, and each is timed. Forgets older times.
  virtual void start() = 0;
  // Adds the times of all that was enqueued since start() or the last read(). Blocks until it is done.
  virtual void read() = 0;
  virtual void stop() = 0;
  virtual const OpTimes& times() const = 0;
};

}  // namespace dtrun::worker
