// Brings microbatches to the GPU. The host checks a microbatch and copies it to pinned memory; a separate
// stream copies it from there to the GPU, beside the computation of the one before; the lane's stream, at its
// turn, copies it to the memory that kernels read. There are several slots, so that the host may be ahead.
// All data that differs between microbatches goes this way, so that the launches of one can be repeated for
// the next (graph.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  // `stream`: the stream of GPU number `gpu` on which all work with the microbatch is enqueued.
  MicrobatchUpload(const Program& program, int capacity, int gpu, CudaArithmetic& arithmetic,
                   CudaStream& stream);
  ~MicrobatchUpload();
  MicrobatchUpload(const MicrobatchUpload&) = delete;

  // Throws WorkerError with EX_NOINPUT for a token or target that the model does not have. Blocks while the
  // GPU is more than kSlots microbatches behind. Reads only the key of a microbatch that is_prepared().
  void upload(const Microbatch& microbatch);

  // The first half of upload(), with the same errors and waits: copies the microbatch to the GPU, without the
  // lane's stream.
  void prepare(const Microbatch& microbatch);
  bool is_prepared(const MicrobatchKey& key) const { return prepared_ && prepared_->key == key; }

  // The microbatch's place in device memory, which never changes: work that is enqueued on the stream between
  // two calls of upload() finds the first call's microbatch there.
  struct OnDevice {
    const float* values = nullptr;
    const std::int32_t* tokens = nullptr;
    const std::int32_t* targets = nullptr;
    const std::uint32_t* real_rows = nullptr;      // one number, that of targets
    const RandomStream::Words* dropout = nullptr;  // for each node of the program
    TokenPieces pieces;
  };
  OnDevice there() const;

 private:
  static constexpr std::size_t kSlots = 2;
  // A wait for an event that was never recorded returns at once.
  struct UploadSlot {
    Buffer host, device;
    cudaEvent_t copied = nullptr;  // from host to device
    CudaEvent taken;               // from device, by the lane's stream
  };
  void check(const Microbatch& microbatch) const;

  const std::size_t capacity_;                   // samples
  const std::size_t values_, tokens_, targets_;  // elements of a whole microbatch
  const int classes_, token_classes_;            // of targets; of tokens
  const std::size_t dropout_;                    // nodes with random numbers of their own; 0: no dropout
  CudaStream& stream_;
  CudaStream copies_;
  EventTimer& timer_;
  TokenSorter sorter_;
  // 32-bit words: numbers of rows and pieces, targets, random numbers, then values, or tokens and their
  // pieces.
  const Buffer device_;
  std::array<UploadSlot, kSlots> slots_;
  std::size_t next_ = 0;
  struct PreparedUpload {
    MicrobatchKey key;
    UploadSlot* slot;
  };
  std::optional<PreparedUpload> prepared_;
};

}  // namespace dtrun::worker::cuda
