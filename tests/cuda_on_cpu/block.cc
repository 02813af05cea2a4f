#include "tests/cuda_on_cpu/block.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024, kGuardBytes = 4096;

// To ThreadSanitizer what one fiber does is in order: it must not start two threads of a block.
#if defined(CUDA_ON_CPU_TSAN)
constexpr bool kOneThreadEach = true;
#else
constexpr bool kOneThreadEach = false;
#endif

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "cuda_on_cpu: %s, in block (%u,%u,%u) thread (%u,%u,%u)\n", what, blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  std::abort();
}

CUDA_ON_CPU_UNSEEN void Block::run(dim3 grid, dim3 block, uint3 index, std::size_t dynamic_bytes,
                                   const std::function<void()>& thread) {
  threads_ = static_cast<int>(block.x * block.y * block.z);
  gridDim = grid;
  blockDim = block;
  blockIdx = index;
  thread_ = &thread;
  running_block = this;
  dynamic_ = dynamic_bytes ? make_piece(nullptr, dynamic_bytes) : nullptr;
  random_ = settings.seed * 0x9e3779b97f4a7c15u + index.x * 31u + index.y * 17u + index.z;
  if (settings.threads == Order::kRandom) shuffle_order();
  started_ = 0;
  alive_ = threads_;
#if defined(CUDA_ON_CPU_TSAN)
  if (!home_.tsan) home_.tsan = __tsan_get_current_fiber();
#endif
  // The work of a fiber so far comes before all work of the fibers that it makes. No fiber of the block may
  // therefore make another.
  while (kOneThreadEach && idle_.size() < threads_) idle_.push(make_fiber());
  released(this);
  current_ = &home_;
  resume(idle());
  acquired(&home_);
  idle_.prepend(spent_);
  release_pieces();
}

CUDA_ON_CPU_UNSEEN void Block::barrier() {
  released(&waiting_);
  waiting_.push(current_);
  if (waiting_.size() == threads_) wake(waiting_);
  wait("no thread can go on: some wait in __syncthreads, others have left the kernel or wait elsewhere");
  acquired(&waiting_);
}

CUDA_ON_CPU_UNSEEN Exchanged Block::meet(unsigned mask, Slot slot) {
  const int lane = current_->thread % warpSize;
  Warp& warp = warps_[current_->thread / warpSize];
  if (!(mask >> lane & 1)) fail("a lane that is not in the mask of its warp operation");
  if (warp.here == 0) warp.mask = mask;
  if (warp.mask != mask) fail("lanes of a warp name different masks");
  Slot* const slots = warp.slots[warp.round & 1];
  slots[lane] = slot;
  warp.waiting.push(current_);
  warp.here |= 1u << lane;
  if (warp.here == mask) {
    warp.here = 0;
    ++warp.round;
    wake(warp.waiting);
  }
  wait("no thread can go on: a warp operation's mask names lanes that are not there");
  return {slots, mask};
}

CUDA_ON_CPU_UNSEEN void* Block::shared_array(const void* place, std::size_t bytes) {
  for (int i = 0; i < piece_count_; ++i) {
    if (pieces_[i].place == place) return pieces_[i].data;
  }
  return make_piece(place, bytes);
}

// The heap's, exactly as large as asked, so that AddressSanitizer sees the first byte too far.
CUDA_ON_CPU_UNSEEN char* Block::make_piece(const void* place, std::size_t bytes) {
  shared_bytes_ += bytes;
  if (piece_count_ == kMaxPieces) fail("more than 32 shared arrays");
  if (shared_bytes_ > kMaxSharedBytes) fail("more than 227 KiB of shared memory");
  const std::size_t size = (bytes + 15) / 16 * 16;
  char* const data = static_cast<char*>(std::aligned_alloc(16, size));
  for (std::size_t i = 0; i < size / 8; ++i) reinterpret_cast<std::uint64_t*>(data)[i] = ~std::uint64_t{0};
  poison(data + bytes, size - bytes);
  released(this);  // threads that start later see the allocation
  pieces_[piece_count_++] = {place, data, size};
  return data;
}

CUDA_ON_CPU_UNSEEN void Block::release_pieces() {
  for (int i = 0; i < piece_count_; ++i) {
    unpoison(pieces_[i].data, pieces_[i].bytes);
    std::free(pieces_[i].data);
  }
  piece_count_ = 0;
  shared_bytes_ = 0;
}

// Here and below plain loops and arrays: ThreadSanitizer would see into std::shuffle and std::vector.
CUDA_ON_CPU_UNSEEN void Block::shuffle_order() {
  for (int i = 0; i < threads_; ++i) {
    const int j = static_cast<int>(random() % (i + 1));
    order_[i] = order_[j];
    order_[j] = i;
  }
}

CUDA_ON_CPU_UNSEEN std::uint64_t Block::random() {
  random_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = random_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

CUDA_ON_CPU_UNSEEN void Block::wake(FiberList& fibers) {
  if (settings.threads != Order::kForward) {
    const int count = fibers.size();
    for (int i = 0; i < count; ++i) {
      const int j = settings.threads == Order::kRandom ? static_cast<int>(random() % (i + 1)) : 0;
      Fiber* const fiber = fibers.pop();
      if (settings.threads == Order::kRandom) {
        shuffled_[i] = shuffled_[j];
        shuffled_[j] = fiber;
      } else {
        shuffled_[count - 1 - i] = fiber;
      }
    }
    for (int i = 0; i < count; ++i) fibers.push(shuffled_[i]);
  }
  ready_.prepend(fibers);  // a warp goes on while its stacks are in the cache
}

// Gives way to a fiber that can go on; returns when this fiber was woken.
CUDA_ON_CPU_UNSEEN void Block::wait(const char* nobody) {
  Fiber* const self = current_;
  if (!ready_.empty()) {
    Fiber* const next = ready_.pop();
    if (next != self) resume(next);
  } else if (started_ < threads_) {
    resume(idle());
  } else {
    fail(nobody);
  }
  threadIdx = self->index;
}

CUDA_ON_CPU_UNSEEN void Block::set_thread(Fiber& fiber, int thread) {
  fiber.thread = thread;
  fiber.waited = false;
  const unsigned t = static_cast<unsigned>(thread);
  if (t < blockDim.x) {
    fiber.index = {t, 0, 0};
  } else {
    fiber.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  }
}

CUDA_ON_CPU_UNSEEN Fiber* Block::idle() { return idle_.empty() ? make_fiber() : idle_.pop(); }

CUDA_ON_CPU_UNSEEN Fiber* Block::make_fiber() {
  char* const base = static_cast<char*>(mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (base == MAP_FAILED || mprotect(base, kGuardBytes, PROT_NONE) != 0)
    fail("no memory for a thread's stack");
  Fiber* const fiber = new Fiber;
  fiber->stack_bottom = base + kGuardBytes;
  fiber->stack_bytes = kStackBytes;
  // Stacks that end at the same place in their page would all fight for the same cache lines.
  fiber->context.prepare(base + kGuardBytes, kStackBytes - fibers_++ % 32 * 128, &Block::entry);
#if defined(CUDA_ON_CPU_TSAN)
  fiber->tsan = __tsan_create_fiber(0);
#endif
  return fiber;
}

CUDA_ON_CPU_UNSEEN void Block::resume(Fiber* next) {
  Fiber* const self = current_;
  current_ = next;
#if defined(CUDA_ON_CPU_ASAN)
  __sanitizer_start_switch_fiber(&self->fake_stack, next->stack_bottom, next->stack_bytes);
#elif defined(CUDA_ON_CPU_TSAN)
  __tsan_switch_to_fiber(next->tsan, __tsan_switch_to_fiber_no_sync);
#endif
  self->context.switch_to(next->context);
  arrived(self);
}

CUDA_ON_CPU_UNSEEN void Block::arrived([[maybe_unused]] Fiber* self) {
#if defined(CUDA_ON_CPU_ASAN)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
  if (!home_.stack_bottom && self != &home_) {  // the first switch of all comes from home
    home_.stack_bottom = bottom;
    home_.stack_bytes = bytes;
  }
#endif
}

void Block::entry() { this_block().live(); }

// A fiber's life: it runs threads of the block until all have been started. One that never waits is followed
// by the next on the same stack.
CUDA_ON_CPU_UNSEEN void Block::live() {
  Fiber* const self = current_;
  arrived(self);
  for (;;) {
    do {
      set_thread(*self, settings.threads == Order::kForward   ? started_
                        : settings.threads == Order::kReverse ? threads_ - 1 - started_
                                                              : order_[started_]);
      ++started_;
      threadIdx = self->index;
      acquired(this);
      (*thread_)();
      released(&home_);
      --alive_;
    } while (!kOneThreadEach && started_ < threads_);
    Fiber* next = nullptr;
    if (!ready_.empty()) {
      next = ready_.pop();
    } else if (started_ < threads_) {
      next = idle();  // before this one is idle itself
    } else if (alive_ == 0) {
      next = &home_;
    } else {
      fail("threads left the kernel while others wait for them in __syncthreads or in a warp operation");
    }
    (kOneThreadEach ? spent_ : idle_).push(self);
    resume(next);
  }
}

}  // namespace cuda_on_cpu
