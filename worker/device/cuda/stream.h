// The trainer's Stream on a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "worker/vector/stream.h"

namespace dtrun::worker::cuda {

class CudaStream final : public Stream {
 public:
  // A stream of this process' GPU number `gpu`.
  explicit CudaStream(int gpu);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;

  void set_name(const std::string& name) override { name_ = name; }
  // Empty for a stream without a name.
  const std::string& name() const { return name_; }

  Event record() override;
  void after(const Event& event) override;
  void wait() override;

  // The CUDA stream. Makes the stream's GPU the calling thread's current one.
  cudaStream_t handle() const;

 private:
  // CUDA's events are used in turn. An event that was recorded again since covers more work of the same
  // stream: its waiter waits longer, but never for work that itself depends on the waiter, since such work is
  // enqueued later.
  static constexpr std::size_t kEvents = 64;

  const int gpu_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::uint64_t recorded_ = 0;
};

// A CUDA event without timing. Recording it again affects only later waits: a stream that waited before still
// waits for the earlier record.
class CudaEvent {
 public:
  CudaEvent();  // on the calling thread's current GPU
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;

  void record(cudaStream_t stream);
  // Within a graph: each launch of the graph records the event, for streams outside of the graph.
  void record_outside(cudaStream_t stream);
  void make_wait(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Makes `gpu` the calling thread's current GPU.
void use_gpu(int gpu);

}  // namespace dtrun::worker::cuda
