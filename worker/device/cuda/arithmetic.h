// Whole vectors on a GPU (worker/vector/arithmetic.h), and the copy of the parameters in bf16 that its lanes
// multiply with.
#pragma once

#include <cuda_bf16.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "worker/device/cuda/stream.h"
#include "worker/device/cuda/timing/event_timer.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker::cuda {

struct GradientScale;

class CudaArithmetic final : public Arithmetic {
 public:
  explicit CudaArithmetic(int gpu) : gpu_(gpu), timer_(gpu) {}

  Buffer allocate(Where where, std::size_t floats) override;
  // `bytes` of the GPU's memory with undefined content, at a multiple of 256 bytes. `what`: names the memory
  // in the error if there is no room for it.
  Buffer allocate_bytes(std::size_t bytes, const std::string& what);
  // As allocate_bytes(), but returns an empty Buffer if there is no room.
  Buffer try_allocate_bytes(std::size_t bytes);

  // Bytes of the GPU's memory that were allocated here and not freed, and the largest number so far. Any
  // thread.
  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }

  // Times the work that is enqueued on the GPU.
  EventTimer& timer() { return timer_; }

  Buffer spare(std::size_t floats) override;
  Buffer pin(std::span<float> memory) override;
  bool device_is_host() const override { return false; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(gpu_); }
  void copy(Stream& stream, float* to, const float* from, std::size_t floats) override;
  void accumulate(Stream& stream, float* left, const float* right, std::size_t floats) override;
  void sum(Stream& stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
           std::size_t floats) override;
  StepResult update(Stream& stream, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors,
                    const Parallel& parallel) override;

  // The parameters rounded to bf16, for use on `stream`. An update writes this copy too; otherwise it is made
  // here. There is a copy of one vector at a time, the last that was asked for, in the same memory. REQUIRES:
  // no work is left that uses another vector's.
  const __nv_bfloat16* rounded(const float* parameters, std::size_t size, Stream& stream);

 private:
  // A vector's copy in bf16. An update keeps the copy true; another write to the vector makes it stale.
  struct Rounded {
    const float* of = nullptr;
    std::size_t size = 0;
    Buffer copy;
    bool true_copy = false;
    Event made;
  };
  void written(const float* to, std::size_t floats);
  StepResult measure(CudaStream& on, const UpdateRule& rule, const float* sum, const float* gradient,
                     std::size_t size);
  void divide(CudaStream& on, float* gradient, float targets, std::size_t size);
  void optimize(CudaStream& on, const UpdateRule& rule, const GradientScale& scale, const float* gradient,
                const UpdatedVectors& vectors);
  std::size_t decaying(CudaStream& stream, const UpdateRule& rule, const UpdatedVectors& vectors);

  const int gpu_;
  EventTimer timer_;
  std::atomic<std::size_t> used_{0}, peak_{0};
  std::mutex mutex_;  // guards rounded_
  Rounded rounded_;
  // For updates, one at a time.
  std::mutex update_mutex_;  // guards the members below
  Buffer results_;           // host memory: the statistics, then the squared norm
  Buffer work_;              // device memory: kernels' workspace and result
  Buffer boundaries_;        // device memory: the ranges below, as 64-bit numbers
  std::vector<VectorRange> decaying_;
};

}  // namespace dtrun::worker::cuda
