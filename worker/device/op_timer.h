// The times of a device's operations, by that device's clock, for worker/profile/.
#pragma once

#include <string>
#include <vector>

#include "worker/schedule/step_kind.h"

namespace dtrun::worker {

// A machine's measured peak rates, which a job's rates are compared with.
struct Ceilings {
  double flops = 0;  // a second, of matmuls
  double bytes = 0;  // a second, read and written
};

struct OpTime {
  int op = 0, stream = 0;     // indices into OpTimes::ops and OpTimes::streams
  double begin = 0, end = 0;  // seconds since the first start()
};

struct OpTimes {
  std::vector<TimedOp> ops;
  std::vector<std::string> streams;  // their names: "lane"; several may have one
  std::vector<OpTime> times;
};

// Used by one thread, while no thread enqueues work.
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  // Makes the device's lanes run each operation by itself, and times each. Forgets older times.
  virtual void start() = 0;
  // Adds the times of the operations run since start() or the last read(). Blocks until they are done.
  virtual void read() = 0;
  virtual void stop() = 0;
  virtual const OpTimes& times() const = 0;
};

}  // namespace dtrun::worker
