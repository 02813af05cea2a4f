// A microbatch on its way to the GPU: what the host hands in is checked, copied to pinned memory, and from
// there by the GPU when its stream gets there. There is room for several, so that the host may be ahead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/base/buffer.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/token_runs.h"
#include "worker/device/device.h"
#include "worker/model/program.h"

namespace dtrun::worker::cuda {

class MicrobatchUpload {
 public:
  // `stream`: on which all work with the microbatch is enqueued.
  MicrobatchUpload(const Program& program, int capacity, CudaArithmetic& arithmetic, CudaStream& stream);
  ~MicrobatchUpload();
  MicrobatchUpload(const MicrobatchUpload&) = delete;

  // The microbatch in device memory: good for what is enqueued on the stream before the next call. Throws
  // WorkerError with EX_NOINPUT if a token or target is none of the model's. Blocks while the GPU is kSlots
  // microbatches behind.
  struct OnDevice {
    const float* values = nullptr;
    const std::int32_t* tokens = nullptr;
    const std::int32_t* targets = nullptr;
    TokenRuns runs;
  };
  OnDevice upload(const Microbatch& microbatch);

 private:
  static constexpr std::size_t kSlots = 2;
  struct Slot {
    Buffer host;
    cudaEvent_t copied = nullptr;
    bool used = false;
  };
  void check(const Microbatch& microbatch) const;

  const std::size_t capacity_;                   // samples
  const std::size_t values_, tokens_, targets_;  // numbers of a whole microbatch
  const int classes_, token_classes_;            // of targets; of tokens
  CudaStream& stream_;
  TokenSorter sorter_;
  // Of 32-bit words: targets, then values, or tokens and their runs.
  const Buffer device_;
  std::array<Slot, kSlots> slots_;
  std::size_t next_ = 0;
};

}  // namespace dtrun::worker::cuda
