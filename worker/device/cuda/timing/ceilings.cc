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
#include "worker/device/cuda_device.h"

namespace dtrun::worker {
namespace {

using cuda::check, cuda::CudaStream;

// Seconds. A copy that takes this long is larger than any cache.
constexpr double kLongCopy = 0.5e-3, kLongProduct = 1e-3, kMeasured = 0.1;
constexpr std::size_t kFirstCopy = std::size_t{1} << 20;  // bytes
constexpr std::int64_t kFirstSide = 256, kLastSide = 16384;

class Stopwatch {
 public:
  explicit Stopwatch(CudaStream& stream) : stream_(stream) {
    stream.handle();  // makes its GPU the current one, to which the events belong
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "making an event");
  }
  ~Stopwatch() {
    for (auto* const event : events_) cudaEventDestroy(event);
  }
  Stopwatch(const Stopwatch&) = delete;

  // Seconds per run, over `times` runs.
  double time(int times, const std::function<void()>& enqueue) {
    check(cudaEventRecord(events_[0], stream_.handle()), "recording an event");
    for (int i = 0; i < times; ++i) enqueue();
    check(cudaEventRecord(events_[1], stream_.handle()), "recording an event");
    check(cudaEventSynchronize(events_[1]), "reading a time");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "reading a time");
    return std::max(1e-9, static_cast<double>(milliseconds) * 1e-3 / times);
  }
  // Seconds per run of work that takes about `once`, over a longer time: the clocks of a GPU fall under load.
  double sustained(double once, const std::function<void()>& enqueue) {
    return time(std::clamp(static_cast<int>(kMeasured / once), 1, 10000), enqueue);
  }

 private:
  CudaStream& stream_;
  cudaEvent_t events_[2] = {};
};

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
double copying(cuda::CudaArithmetic& arithmetic, CudaStream& stream, Stopwatch& watch) {
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
    watch.time(1, copy);  // the first run touches the memory
    const double once = watch.time(1, copy);
    rate = 2 * static_cast<double>(bytes) / watch.sustained(once, copy);
    if (once >= kLongCopy) return rate;
  }
}

// Additions and multiplications a second, of the best size.
double multiplying(cuda::CudaArithmetic& arithmetic, CudaStream& stream, Stopwatch& watch, bool bf16) {
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
    watch.time(1, multiply);  // the first run loads the kernel
    const double once = watch.time(1, multiply);
    const double flops =
        2 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
    best = std::max(best, flops / watch.sustained(once, multiply));
    if (once >= kLongProduct) break;
  }
  return best;
}

}  // namespace

Ceilings measure_cuda_ceilings(int gpu, bool bf16) {
  cuda::CudaArithmetic arithmetic(gpu);
  CudaStream stream(gpu);
  Stopwatch watch(stream);
  return {.flops = multiplying(arithmetic, stream, watch, bf16), .bytes = copying(arithmetic, stream, watch)};
}

}  // namespace dtrun::worker
