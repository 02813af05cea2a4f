// The common parts of trials of a job's parts: a GPU with its streams and libraries, and vectors on it.
#pragma once

#include <memory>
#include <vector>

#include "tests/bench/event_timer.h"
#include "worker/base/error.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"
#include "worker/device/cuda/matmul/matmuls.h"

namespace dtrun::worker::cuda {

struct TrialGpu {
  // This process' GPU number 0. Throws WorkerError.
  explicit TrialGpu(Timer measure = by_events);

  Timer timer;
  CudaArithmetic arithmetic{0};
  CudaStream stream{0};
  Matmuls matmuls;
  std::unique_ptr<CudnnOps> cudnn;  // null: there is none
  Buffer workspace;                 // enough for any matmul
};

// Memory for any matmul's work, for one stream. Throws WorkerError if there is no room.
Buffer product_workspace(CudaArithmetic& arithmetic);

// Device memory with numbers between -largest and largest that follow from `seed`. Throws WorkerError with
// EX_CONFIG if there is no room.
template <typename T>
class OnGpuVector {
 public:
  OnGpuVector(TrialGpu& gpu, std::size_t count, unsigned seed, float largest = 1)
      : stream_(gpu.stream),
        count_(count),
        memory_(gpu.arithmetic.allocate_bytes(count * sizeof(T), "a trial")) {
    scatter(stream_.handle(), count, seed, largest, data());
    check_launch("scatter");
  }
  // Waits for enqueued work, which uses the memory that is freed here.
  ~OnGpuVector() {
    try {
      stream_.wait();
    } catch (const WorkerError&) {
      // The GPU failed: it does nothing more.
    }
  }
  OnGpuVector(const OnGpuVector&) = delete;
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  CudaStream& stream_;
  const std::size_t count_;
  const Buffer memory_;
};

// An attention's operands.
template <typename T>
struct AttentionMemory {
  AttentionMemory(TrialGpu& gpu, const AttentionShape& shape)
      : rows(static_cast<std::size_t>(shape.samples) * shape.tokens * shape.width()),
        // Scores that differ by about 5 in a row: neither even nor one.
        qkv(gpu, 3 * rows, 1, 4),
        out(gpu, rows, 2),
        out_gradient(gpu, rows, 3),
        qkv_gradient(gpu, 3 * rows, 4),
        statistics(gpu, attention_statistics(shape), 5) {}

  std::size_t rows;
  OnGpuVector<T> qkv, out, out_gradient, qkv_gradient;
  OnGpuVector<float> statistics;
};

}  // namespace dtrun::worker::cuda
