// A microbatch on its way to the GPU: what the host hands in is checked and copied to pinned memory; a stream
// of its own takes it from there to the GPU, beside the microbatch that is computed; the lane's stream, when
// it gets there, copies it to where the kernels look. There is room for several, so that the host may be
// ahead.
// Whatever differs from one microbatch to the next goes this way, so that what is launched for one can be
// launched again for the next (graph.h).
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
  // `stream`: on which all work with the microbatch is enqueued, of GPU number `gpu`.
  MicrobatchUpload(const Program& program, int capacity, int gpu, CudaArithmetic& arithmetic,
                   CudaStream& stream);
  ~MicrobatchUpload();
  MicrobatchUpload(const MicrobatchUpload&) = delete;

  // Throws WorkerError with EX_NOINPUT if a token or target is none of the model's. Blocks while the GPU is
  // more than kSlots microbatches behind. Of one that is_prepared() only the key is looked at.
  void upload(const Microbatch& microbatch);

  // The first half of upload(), which throws and blocks likewise: the microbatch goes to the GPU, and the
  // lane's stream learns nothing of it.
  void prepare(const Microbatch& microbatch);
  bool is_prepared(const MicrobatchKey& key) const { return prepared_ && prepared_->key == key; }

  // Where the microbatch lies in device memory, always the same: it is there for what is enqueued on the
  // stream between two calls of upload().
  struct OnDevice {
    const float* values = nullptr;
    const std::int32_t* tokens = nullptr;
    const std::int32_t* targets = nullptr;
    const std::uint32_t* real_rows = nullptr;      // one number: of the targets
    const RandomStream::Words* dropout = nullptr;  // of each node of the program
    TokenPieces pieces;
  };
  OnDevice there() const;

 private:
  static constexpr std::size_t kSlots = 2;
  // Events that were never recorded make nobody wait.
  struct Slot {
    Buffer host, device;
    cudaEvent_t copied = nullptr;  // from one to the other
    CudaEvent taken;               // from there, by the lane's stream
  };
  void check(const Microbatch& microbatch) const;

  const std::size_t capacity_;                   // samples
  const std::size_t values_, tokens_, targets_;  // numbers of a whole microbatch
  const int classes_, token_classes_;            // of targets; of tokens
  const std::size_t dropout_;                    // nodes with random numbers of their own; 0: no dropout
  CudaStream& stream_;
  CudaStream copies_;
  EventTimer& timer_;
  TokenSorter sorter_;
  // Of 32-bit words: numbers of rows and pieces, targets, random numbers, then values, or tokens and their
  // pieces.
  const Buffer device_;
  std::array<Slot, kSlots> slots_;
  std::size_t next_ = 0;
  struct Prepared {
    MicrobatchKey key;
    Slot* slot;
  };
  std::optional<Prepared> prepared_;
};

}  // namespace dtrun::worker::cuda
