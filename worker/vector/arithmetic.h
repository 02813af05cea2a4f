// A device's operations on whole vectors, independent of the model: allocation, copies, sums in the tree's
// order, and the optimizer step. The trainer, the accumulator and the exchange know vectors only through
// this, so another device is another implementation of it.
//
// Vectors are named by device pointers, which the host must not dereference. For a checkpoint or a message
// over TCP the in-memory checkpoints the vector, or asks device_is_host().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "worker/base/buffer.h"
#include "worker/core/tree.h"
#include "worker/vector/stream.h"
#include "worker/vector/update.h"

namespace dtrun::worker {

enum class Where {
  kDevice,
  kHost,  // memory that the device copies from and to fast
};

// Calls work(i, count) for each i in [0, count), at once on as many threads, and returns when all have ended.
// Empty: the calling thread does it all.
using Parallel = std::function<void(const std::function<void(int index, int count)>& work)>;

// Any thread, each with a stream of its own. Operations with a stream are enqueued there and may return
// before they are done: until then their memory must not change. Throws WorkerError if the device failed.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  // Zero at first, 64-byte aligned. Slow: for start-up, and for memory that is used again in every step. The
  // Buffer frees it once no enqueued work uses it. REQUIRES: this outlives the Buffer.
  virtual Buffer allocate(Where where, std::size_t floats) = 0;

  // Device memory that the caller can do without, with undefined content: none where device memory is the
  // host's, or where it would leave the device short of memory.
  virtual Buffer spare(std::size_t /*floats*/) { return {}; }

  // Makes the device copy to and from this host memory as if it were kHost's, for the lifetime of the
  // returned Buffer. Empty where the system refuses: copies then take longer, and block the calling thread.
  // Slow. REQUIRES: the Buffer is destroyed before the memory.
  virtual Buffer pin(std::span<float> /*memory*/) { return {}; }

  // Whether kDevice is host memory as well: then the host may use a device pointer itself, once the work that
  // was enqueued on the vector is done.
  virtual bool device_is_host() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Source and destination are device memory, or any host memory.
  virtual void copy(Stream& stream, float* to, const float* from, std::size_t floats) = 0;

  // left[i] = left[i] + right[i]; operands in this order, so that even NaN bits do not depend on the rank
  // that adds.
  virtual void accumulate(Stream& stream, float* left, const float* right, std::size_t floats) = 0;

  // out[i] = the sum over inputs[0 .. sum.inputs)[i]. `out` must not overlap an input. `sum` and `inputs` are
  // read before this returns.
  virtual void sum(Stream& stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
                   std::size_t floats) = 0;

  // Computes the mean of a step's gradient, its norm, clipping, and the optimizer's step. `sum`:
  // kStatisticsFloats and vectors.size floats of the whole job's step; left undefined. A device whose memory
  // is the host's does it on the threads of `parallel`. Blocks until all of it is done.
  // Every replica does the same operations element by element, so the result has the same bits everywhere.
  virtual StepResult update(Stream& stream, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors,
                            const Parallel& parallel) = 0;

  // The same for an outer step. `sum`: [statistics | parameters] of all replicas; vectors.parameters: where
  // they began, and then where they go on. Statistics of batch norms become their mean. Only the CPU can do
  // it.
  virtual StepResult outer_update(Stream& stream, const OuterRule& rule, float* sum,
                                  const UpdatedVectors& vectors, const Parallel& parallel);
};

// An Arithmetic that does each operation before the call returns: an update on the threads that it is given,
// all else on the calling thread. Its streams have no state: any thread may use any of them, also after the
// Arithmetic's end.
std::unique_ptr<Arithmetic> make_cpu_arithmetic();

}  // namespace dtrun::worker
