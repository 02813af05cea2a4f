// One block of a kernel's grid: its threads are fibers of one OS thread, so a __syncthreads or a warp
// operation is a switch, and a thread that never waits costs none. Only the simulated device's thread
// (scheduler.cc) runs blocks, one after another.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "tests/cuda_on_cpu/fiber.h"

// CUDA's words, the running thread's. Plain globals: all kernels run on one OS thread.
inline constinit uint3 threadIdx{}, blockIdx{};
inline constinit dim3 blockDim{}, gridDim{};
inline constexpr int warpSize = 32;

namespace cuda_on_cpu {

inline constexpr int kMaxThreads = 1024;
inline constexpr std::size_t kMaxSharedBytes = 227 * 1024;  // dynamic and static together

// Says what a kernel did wrong, and where, and ends the process.
[[noreturn]] void fail(const char* what);

// A value on its way between lanes.
struct alignas(16) Slot {
  std::uint64_t words[2];
};

// The values that the lanes of a warp handed over. Good until this lane's next but one warp operation.
struct Exchanged {
  const Slot* slots;  // [32], by lane
  unsigned mask;

  // The value of a lane outside the mask is undefined in CUDA; here it is full of ones, so a float is NaN.
  template <typename T>
  CUDA_ON_CPU_UNSEEN T from(int lane) const {
    static constexpr Slot kNothing = {{~std::uint64_t{0}, ~std::uint64_t{0}}};
    T value;
    std::memcpy(&value, mask >> lane & 1 ? &slots[lane] : &kNothing, sizeof(T));
    return value;
  }
};

class Block {
 public:
  // Calls `thread` once for each thread of the block `index`.
  void run(dim3 grid, dim3 block, uint3 index, std::size_t dynamic_bytes,
           const std::function<void()>& thread);

  // For the threads of the block that runs:

  void barrier();

  // Hands `value` to the other lanes in `mask`, once all of them are here. Orders no accesses to memory.
  template <typename T>
  CUDA_ON_CPU_UNSEEN Exchanged exchange(unsigned mask, T value) {
    static_assert(sizeof(T) <= sizeof(Slot));
    Slot slot{};
    std::memcpy(&slot, &value, sizeof(T));
    return meet(mask, slot);
  }
  // Whether the thread has waited for the work in front of its grid in the stream.
  CUDA_ON_CPU_UNSEEN bool has_waited() const { return current_->waited; }
  CUDA_ON_CPU_UNSEEN void wait_for_previous() { current_->waited = true; }
  CUDA_ON_CPU_UNSEEN int lane() const { return current_->thread % warpSize; }

  CUDA_ON_CPU_UNSEEN void* dynamic_shared() { return dynamic_; }
  // The array of the place in the source that `place` is unique for. 16-byte aligned, full of NaN at first.
  void* shared_array(const void* place, std::size_t bytes);

 private:
  struct Warp {
    unsigned mask = 0, here = 0;  // lanes that are to come, and that have
    unsigned round = 0;
    FiberList waiting;
    Slot slots[2][warpSize];
  };
  struct Piece {
    const void* place;
    char* data;
    std::size_t bytes;
  };

  Exchanged meet(unsigned mask, Slot slot);
  char* make_piece(const void* place, std::size_t bytes);
  void release_pieces();
  void shuffle_order();
  void wake(FiberList& fibers);
  void wait(const char* nobody);
  void set_thread(Fiber& fiber, int thread);
  Fiber* idle();
  Fiber* make_fiber();
  void resume(Fiber* next);
  void arrived(Fiber* self);
  static void entry();
  void live();
  std::uint64_t random();

  int threads_ = 0, started_ = 0, alive_ = 0;
  const std::function<void()>* thread_ = nullptr;
  Fiber home_;  // the OS thread's own stack
  Fiber* current_ = &home_;
  int fibers_ = 0;  // made; they live as long as the process
  FiberList idle_, waiting_, ready_;
  FiberList spent_;  // idle once this block is done
  Fiber* shuffled_[kMaxThreads];
  int order_[kMaxThreads];
  Warp warps_[kMaxThreads / warpSize];
  static constexpr int kMaxPieces = 32;
  Piece pieces_[kMaxPieces];
  int piece_count_ = 0;
  std::size_t shared_bytes_ = 0;
  void* dynamic_ = nullptr;
  std::uint64_t random_ = 0;
};

// The one that runs.
inline constinit Block* running_block = nullptr;
inline Block& this_block() { return *running_block; }

}  // namespace cuda_on_cpu
