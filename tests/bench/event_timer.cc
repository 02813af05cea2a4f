#include "tests/bench/event_timer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kRounds = 7;
constexpr double kMicrosecondsOfARound = 1000;
constexpr int kMostTimes = 50;  // in a round
constexpr std::chrono::milliseconds kLongestWait{20};

}  // namespace

double by_events(CudaStream& stream, int times, const std::function<void()>& enqueue) {
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "making an event");
  // Nothing runs until all is enqueued, or short work would be told apart by how fast the host is.
  static std::atomic<bool> enqueued;
  enqueued = false;
  const auto wait = [](void*) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point last = Clock::now() + kLongestWait;
    while (!enqueued && Clock::now() < last) std::this_thread::yield();
  };
  check(cudaLaunchHostFunc(stream.handle(), wait, nullptr), "enqueueing a host function");
  check(cudaEventRecord(events[0], stream.handle()), "recording an event");
  for (int i = 0; i < times; ++i) enqueue();
  check(cudaEventRecord(events[1], stream.handle()), "recording an event");
  enqueued = true;
  stream.wait();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events[0], events[1]), "reading a time");
  for (cudaEvent_t const event : events) check(cudaEventDestroy(event), "destroying an event");
  return 1000.0 * static_cast<double>(milliseconds) / times;
}

std::vector<double> medians_by_turns(CudaStream& stream, const Timer& timer, const std::vector<Way>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      ways[i].prepare();
      const double before = times[i].empty() ? kMicrosecondsOfARound : std::max(times[i].back(), 1.0);
      const int count = std::clamp(static_cast<int>(kMicrosecondsOfARound / before), 1, kMostTimes);
      times[i].push_back(timer(stream, count, ways[i].enqueue));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_way : times) {
    std::ranges::nth_element(of_way, of_way.begin() + kRounds / 2);
    medians.push_back(of_way[kRounds / 2]);
  }
  return medians;
}

}  // namespace dtrun::worker::cuda
