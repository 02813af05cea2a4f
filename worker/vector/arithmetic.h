// What a device does to whole vectors, whatever the model: it holds them, copies them, adds them up in the
// tree's order, and makes one optimizer step of a sum. The trainer, the accumulator and the exchange know
// vectors only through this, so another device is another implementation of it.
//
// Vectors are named by device pointers: the host must not look behind them. Where it has to, as for a
// checkpoint or a message over TCP, it copies, or asks device_is_host().
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "worker/base/buffer.h"
#include "worker/core/tree.h"
#include "worker/vector/stream.h"
#include "worker/vector/update.h"

namespace dtrun::worker {

enum class Where {
  kDevice,
  kHost,  // from and to which the device copies fast
};

// Any thread, each with a stream of its own. Operations with a stream are enqueued there and may return
// before they are done: until then their memory must stay as it is. Throws WorkerError if the device failed.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  // Zero at first, 64-byte aligned. Slow: for start-up, and for what is used again step after step. Freed by
  // the Buffer, which must not outlive this, once nothing enqueued uses it.
  virtual Buffer allocate(Where where, std::size_t floats) = 0;

  // Device memory that the caller can do without: none where that is the host's, or would leave the device
  // short of it. Anything is in it.
  virtual Buffer spare(std::size_t /*floats*/) { return {}; }

  // From now on the device copies to and from this host memory as if it were kHost's, until what this returns
  // is gone, which must be before the memory is. None where the system refuses: then copies take longer, and
  // the calling thread with them. Slow.
  virtual Buffer pin(std::span<float> /*memory*/) { return {}; }

  // Whether kDevice is host memory as well: then the host may use a device pointer itself, once what was
  // enqueued on the vector is done.
  virtual bool device_is_host() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Each side device memory, or any host memory.
  virtual void copy(Stream& stream, float* to, const float* from, std::size_t floats) = 0;

  // left[i] = left[i] + right[i]; operands in this order, so that even NaN bits do not depend on who adds.
  virtual void add_right(Stream& stream, float* left, const float* right, std::size_t floats) = 0;

  // out[i] = the sum over inputs[0 .. sum.inputs)[i]. `out` must not overlap an input. `sum` and `inputs` are
  // read before this returns.
  virtual void sum(Stream& stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
                   std::size_t floats) = 0;

  // The mean of a step's gradient, its norm, clipping, and the optimizer. `sum`: kStatisticsFloats and
  // vectors.size floats of the whole job's step; left undefined. Blocks until all of it is done.
  // Element by element the same operations on every replica, so the result is the same bits everywhere.
  virtual StepResult update(Stream& stream, const UpdateRule& rule, float* sum,
                            const UpdatedVectors& vectors) = 0;
};

// Everything is done when the call returns, on the calling thread. Its streams have no state: any thread may
// use any of them, also after its end.
std::unique_ptr<Arithmetic> make_cpu_arithmetic();

}  // namespace dtrun::worker
