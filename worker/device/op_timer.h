// The times of the operations of a device that works asynchronously to the host, by that device's clock, for
// worker/profile/. Lanes that compute on their own threads record times by node_clock.h.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// A machine's measured peak rates, which a job's rates are compared with.
struct Ceilings {
  double flops = 0;  // a second, of matmuls
  double bytes = 0;  // a second, read and written
};

// The least work of an operation, with any kernel. A multiplication with its addition is two flops; only
// matmuls, convolutions and attention count any. Bytes of the device's memory, each once, without those that
// a kernel leaves for another of the same operation.
struct OpCost {
  double flops = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  OpCost& operator+=(const OpCost& other) {
    flops += other.flops, read += other.read, written += other.written;
    return *this;
  }
};

// Operations that do the same at different times, or for different nodes of a program.
struct OpKind {
  std::string what;  // "Linear 768 -> 3072 + GELU", "AdamW"
  std::string part;  // "forward", "weight gradient"; empty for an operation of no node
  bool operator==(const OpKind&) const = default;
};

struct TimedOp {
  OpKind kind;
  int node = -1;  // of the program; -1: no node
  OpCost cost;
};

struct OpTime {
  int op = 0, stream = 0;     // indices into OpTimes::ops and OpTimes::streams
  double begin = 0, end = 0;  // seconds since the first start()
};

struct OpTimes {
  std::vector<TimedOp> ops;
  std::vector<std::string> streams;  // their names: "lane"
  std::vector<OpTime> times;
};

// Used by one thread, while no thread enqueues work.
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  // Makes the device's lanes enqueue each operation by itself, and times each. Forgets older times.
  virtual void start() = 0;
  // Adds the times of the operations enqueued since start() or the last read(). Blocks until they are done.
  virtual void read() = 0;
  virtual void stop() = 0;
  virtual const OpTimes& times() const = 0;
};

}  // namespace dtrun::worker
