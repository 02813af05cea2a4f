// Measures a GPU's peak rates: a copy within its memory, and a square matmul. Each grows until one run takes
// long enough that neither a kernel's start nor a cache is measured; on a slow device small sizes suffice.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/timing/event_timer.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker {
namespace {

using cuda::check, cuda::CudaStream, cuda::EventTimer;

// Seconds. A copy that takes this long is larger than any cache.
constexpr double kLongCopy = 0.5e-3, kLongProduct = 1e-3, kMeasured = 0.1;
constexpr std::size_t kFirstCopy = std::size_t{1} << 20;  // bytes
constexpr std::int64_t kFirstSide = 256, kLastSide = 16384;

// Seconds per run, over `times` runs.
double time_of(EventTimer& timer, const CudaStream& stream, int times, const std::function<void()>& enqueue) {
  timer.start();
  {
    const EventTimer::Scope timed(timer, stream, [] { return cuda::vector_op("measuring", 0, 0); });
    for (int i = 0; i < times; ++i) enqueue();
  }
  timer.read();
  const OpTime& all = timer.times().times.front();
  return std::max(1e-9, (all.end - all.begin) / times);
}

// Seconds per run of work that takes about `once`, over a longer time: the clocks of a GPU fall under load.
double sustained_time_of(EventTimer& timer, const CudaStream& stream, double once,
                         const std::function<void()>& enqueue) {
  return time_of(timer, stream, std::clamp(static_cast<int>(kMeasured / once), 1, 10000), enqueue);
}

// Random numbers: with zeros a GPU draws less power, and is faster than with any model.
void fill(CudaStream& stream, const Buffer& buffer, std::size_t bytes, bool bf16) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> some(-1, 1);
  std::vector<std::uint16_t> first(std::min<std::size_t>(bytes, 1 << 20) / 2);
  for (std::size_t i = 0; i + 1 < first.size(); i += 2) {
    const float values[2] = {some(random), some(random)};
    std::uint32_t bits[2];
    std::memcpy(bits, values, sizeof bits);
    // A bf16 is the upper half of a float.
    first[i] = static_cast<std::uint16_t>(bf16 ? bits[0] >> 16 : bits[0]);
    first[i + 1] = static_cast<std::uint16_t>(bf16 ? bits[1] >> 16 : bits[0] >> 16);
  }
  auto* const begin = reinterpret_cast<char*>(buffer.data());
  std::size_t done = 2 * first.size();
  check(cudaMemcpyAsync(begin, first.data(), done, cudaMemcpyHostToDevice, stream.handle()), "copying");
  for (; done < bytes; done += std::min(done, bytes - done))
    check(cudaMemcpyAsync(begin + done, begin, std::min(done, bytes - done), cudaMemcpyDeviceToDevice,
                          stream.handle()),
          "copying");
  stream.wait();
}

// Bytes a second, read and written, of a copy that takes kLongCopy, or of the largest that fits into memory.
double copying(cuda::CudaArithmetic& arithmetic, CudaStream& stream, EventTimer& timer) {
  double rate = 0;
  for (std::size_t bytes = kFirstCopy;; bytes *= 2) {
    const Buffer from = arithmetic.try_allocate_bytes(bytes), to = arithmetic.try_allocate_bytes(bytes);
    if (!from || !to) {
      if (rate == 0) cuda::out_of_memory("two vectors to copy", 2 * bytes);
      return rate;
    }
    fill(stream, from, bytes, false);
    const auto copy = [&] {
      check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.handle()),
            "copying");
    };
    time_of(timer, stream, 1, copy);  // the first run touches the memory
    const double once = time_of(timer, stream, 1, copy);
    rate = 2 * static_cast<double>(bytes) / sustained_time_of(timer, stream, once, copy);
    if (once >= kLongCopy) return rate;
  }
}

// Additions and multiplications a second, of the best size.
double multiplying(cuda::CudaArithmetic& arithmetic, CudaStream& stream, EventTimer& timer, bool bf16) {
  cuda::Matmuls matmuls;
  double best = 0;
  for (std::int64_t side = kFirstSide; side <= kLastSide; side *= 2) {
    const cuda::MatmulShape shape{
        .m = side, .n = side, .k = side, .a_stride = side, .b_stride = side, .c_stride = side, .bf16 = bf16};
    const std::size_t bytes = cuda::bytes_of(shape).a;
    if (!matmuls.can(shape)) break;
    const Buffer a = arithmetic.try_allocate_bytes(bytes), b = arithmetic.try_allocate_bytes(bytes),
                 c = arithmetic.try_allocate_bytes(bytes),
                 work = arithmetic.try_allocate_bytes(matmuls.workspace(shape));
    if (!a || !b || !c || !work) break;
    fill(stream, a, bytes, bf16);
    fill(stream, b, bytes, bf16);
    const auto multiply = [&] {
      matmuls.multiply(shape, {.a = a.data(), .b = b.data(), .c = c.data(), .bias = nullptr, .aux = nullptr},
                       work.data(), stream.handle());
    };
    time_of(timer, stream, 1, multiply);  // the first run loads the kernel
    const double once = time_of(timer, stream, 1, multiply);
    const double flops =
        2 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
    best = std::max(best, flops / sustained_time_of(timer, stream, once, multiply));
    if (once >= kLongProduct) break;
  }
  return best;
}

}  // namespace

Ceilings measure_cuda_ceilings(int gpu, bool bf16) {
  cuda::CudaArithmetic arithmetic(gpu);
  CudaStream stream(gpu);
  EventTimer timer(gpu);
  return {.flops = multiplying(arithmetic, stream, timer, bf16), .bytes = copying(arithmetic, stream, timer)};
}

}  // namespace dtrun::worker
