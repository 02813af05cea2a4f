// A CUDA stream as the trainer sees one.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "worker/vector/stream.h"

namespace dtrun::worker::cuda {

class CudaStream final : public Stream {
 public:
  // On this process' GPU number `gpu`.
  explicit CudaStream(int gpu);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;

  void set_name(const std::string& name) override { name_ = name; }
  // Empty if it has none.
  const std::string& name() const { return name_; }

  Event record() override;
  void after(const Event& event) override;
  void wait() override;

  // For a call of CUDA's on the calling thread, which works on the stream's GPU from now on.
  cudaStream_t handle() const;

 private:
  // CUDA's events are used in turn. One that has been recorded again since stands for more work of the same
  // stream: who waits for it waits longer, but never for work that waits for him, since that would have been
  // enqueued after him.
  static constexpr std::size_t kEvents = 64;

  const int gpu_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::uint64_t recorded_ = 0;
};

// An event of CUDA's own, of which no time is asked. Recorded again, it stands for the last time alone: who
// waited before waits for what it stood for then.
class CudaEvent {
 public:
  CudaEvent();  // on the GPU on which the calling thread works
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;

  void record(cudaStream_t stream);
  // Within a graph: each launch of it records the event, for streams outside of it.
  void record_outside(cudaStream_t stream);
  void make_wait(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Makes `gpu` the one on which the calling thread works.
void use_gpu(int gpu);

}  // namespace dtrun::worker::cuda
