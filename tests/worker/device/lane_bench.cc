// How long one microbatch takes: forward and backward on this thread. Run by hand and by scripts/bench.
//   lane_bench [micro_batch_size] [seconds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "worker/device/device.h"

using namespace dtrun::worker;

int main(int argc, char** argv) {
  const int capacity = argc > 1 ? std::atoi(argv[1]) : 16;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  if (capacity < 1 || seconds <= 0) {
    std::fprintf(stderr, "usage: lane_bench [micro_batch_size] [seconds]\n");
    return 64;
  }
  const Program program = make_program(ModelConfig{.type = "convnet"}, {.shape = {1, 28, 28}, .classes = 10});
  std::vector<float> parameters(program.size), out(kStatisticsFloats + program.size),
      x(capacity * program.sample.shape.size());
  initialize_parameters(program, 1, parameters);
  std::vector<std::int32_t> labels(capacity);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 2654435761u % 1000) / 500.0f - 1.0f;
  for (int n = 0; n < capacity; ++n) labels[n] = n % 10;

  const auto device = make_cpu_device();
  const auto lane = device->make_lane(program, capacity);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<double> times;
  while (Clock::now() < end) {
    const auto start = Clock::now();
    lane->weights_changed(parameters.data());
    lane->train({capacity, x.data(), labels.data()}, out.data(), [](int) {});
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"micro_batch_size\": %d, \"runs\": %zu, \"min_ms\": %.3f, \"median_ms\": %.3f, \"loss\": %.4f}\n",
      capacity, times.size(), times.front(), times[times.size() / 2], out[0]);
  return 0;
}
