#include "worker/profile/ceilings.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/device/cpu/matmul/multiplier.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kOneMeasurement{100};

// The calls of `work` per second and thread, averaged over threads that all run at once.
double rate_of(int threads, const std::function<std::function<void()>()>& make_work) {
  std::barrier together(threads);
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto measure = [&](int thread) {
    const std::function<void()> work = make_work();
    work();  // the first call touches the memory
    together.arrive_and_wait();
    const auto begin = Clock::now();
    int times = 0;
    while (Clock::now() - begin < kOneMeasurement) {
      work();
      ++times;
    }
    rates[static_cast<std::size_t>(thread)] =
        times / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(measure, thread);
  measure(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum / threads;
}

// A matmul of zeros, which takes as long as any other.
template <typename Element>
matmul::Matmul<Element> square(std::int64_t size, const Buffer& memory) {
  const auto floats = static_cast<std::size_t>(size * size);
  return {.m = size,
          .n = size,
          .k = size,
          .a = reinterpret_cast<const Element*>(memory.data()),
          .a_stride = size,
          .b = reinterpret_cast<const Element*>(memory.data() + floats),
          .b_stride = size,
          .c = memory.data() + 2 * floats,
          .c_stride = size};
}

double matmuls(int threads, std::int64_t size, bool bf16) {
  const auto make = [&]() -> std::function<void()> {
    // Shared, since std::function copies its captures and a Buffer cannot be copied.
    const auto memory = std::make_shared<Buffer>(3 * static_cast<std::size_t>(size * size));
    if (bf16 && onednn::has_amx()) {
      onednn::use_one_thread();
      const auto multiplier = std::make_shared<onednn::Bf16Multiplier>();
      return [=] { multiplier->multiply(square<matmul::Bf16>(size, *memory)); };
    }
    const auto multiplier = bf16 ? std::make_shared<matmul::Multiplier>(*matmul::bf16_kernels())
                                 : std::make_shared<matmul::Multiplier>();
    return [=] { multiplier->multiply(square<float>(size, *memory)); };
  };
  return rate_of(threads, make) * 2 * static_cast<double>(size * size * size);
}

double memory(int threads, std::size_t floats) {
  const std::size_t each = std::max<std::size_t>(1024, floats / 3);
  const auto make = [&]() -> std::function<void()> {
    const auto vectors = std::make_shared<Buffer>(3 * each);
    return [vectors, each] {
      float* const a = vectors->data();
      planned::kernels().add(each, a, a + each, a + 2 * each);
    };
  };
  return rate_of(threads, make) * 3 * sizeof(float) * static_cast<double>(each);
}

}  // namespace

Ceilings measure_ceilings(int threads, std::size_t floats, bool bf16) {
  Ceilings best;
  for (const std::int64_t size : {192, 384, 768})
    best.flops = std::max(best.flops, matmuls(threads, size, bf16));
  best.bytes = memory(threads, floats);
  return best;
}

std::string describe_processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string name = "a processor without a name", flags;
  for (std::string line; std::getline(info, line) && (flags.empty() || name.empty());) {
    const std::size_t value = line.find(": ");
    if (value == std::string::npos) continue;
    if (line.starts_with("model name")) name = line.substr(value + 2);
    if (line.starts_with("flags")) flags = line.substr(value + 2) + " ";
  }
  const auto has = [&](const char* flag) {
    return flags.find(" " + std::string(flag) + " ") != std::string::npos;
  };
  if (has("avx512f"))
    name += ", AVX-512";
  else if (has("avx2"))
    name += ", AVX2";
  if (has("avx512_bf16")) name += ", bf16";
  if (has("amx_bf16")) name += ", AMX";
  return name;
}

}  // namespace dtrun::worker
