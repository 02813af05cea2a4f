// Streams, events, copies: the order of work, and the guarantees for the host.
#include <atomic>
#include <thread>

#include "tests/cuda_on_cpu/device_test.h"

namespace {

using namespace cuda_on_cpu;

__global__ void add(int* x, int by) { x[threadIdx.x] += by; }
__global__ void times(int* x, int by) { x[threadIdx.x] *= by; }
__global__ void copy(int* to, const int* from) { to[threadIdx.x] = from[threadIdx.x]; }

constexpr int kCount = 32;
constexpr Policy kPolicies[] = {Policy::kAtOnce, Policy::kAsLateAsPossible, Policy::kRandom};

TEST_CASE("nothing runs before somebody waits for it, and then no more than he waits for") {
  const Restored restored;
  const TestStream first, second;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  reset_counters();
  launch(add, 1, kCount, 0, first, x.data(), 1);
  launch(add, 1, kCount, 0, second, x.data(), 1);
  CHECK(counters().kernels == 0);
  OK(cudaStreamSynchronize(first));
  CHECK(counters().kernels == 1);
  CHECK(counters().kernels_by_name.at("add") == 1);
  OK(cudaDeviceSynchronize());
  CHECK(counters().kernels == 2);
  CHECK(x.get()[0] == 3);
}

TEST_CASE("at once means before the call returns") {
  const Restored restored;
  settings.streams = Policy::kAtOnce;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  reset_counters();
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  CHECK(counters().kernels == 1);
}

TEST_CASE("a stream's operations run in order, under every policy and order") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(kCount);
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    x.put(std::vector<int>(kCount, 1));
    for (int i = 0; i < 10; ++i) {
      launch(add, 1, kCount, 0, stream, x.data(), 1);
      launch(times, 1, kCount, 0, stream, x.data(), 2);
    }
    OK(cudaStreamSynchronize(stream));
    CHECK(x.get() == std::vector<int>(kCount, 3 * 1024 - 2));
  }
}

// `with`: the second stream waits for the first one's event.
std::vector<int> copied_behind_addition(bool with) {
  const TestStream first, second;
  const TestEvent added;
  const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 0));
  launch(add, 1, kCount, 0, first, x.data(), 1);
  OK(cudaEventRecord(added, first));
  if (with) OK(cudaStreamWaitEvent(second, added));
  launch(copy, 1, kCount, 0, second, y.data(), x.data());
  OK(cudaStreamSynchronize(second));
  const std::vector<int> result = y.get();
  OK(cudaDeviceSynchronize());
  return result;
}

TEST_CASE("an event orders two streams, under every policy") {
  const Restored restored;
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    for (settings.seed = 1; settings.seed <= 20; ++settings.seed) {
      CHECK(copied_behind_addition(true) == std::vector<int>(kCount, 2));
    }
  }
}

TEST_CASE("a missing event wait is wrong every time as late as possible, and sometimes at random") {
  const Restored restored;
  for (int i = 0; i < 20; ++i) CHECK(copied_behind_addition(false) == std::vector<int>(kCount, 1));
  settings.streams = Policy::kRandom;
  int wrong = 0;
  for (settings.seed = 1; settings.seed <= 20; ++settings.seed) {
    wrong += copied_behind_addition(false) == std::vector<int>(kCount, 1);
  }
  CHECK(wrong > 0);
  CHECK(wrong < 20);
}

TEST_CASE("a wait is for what was recorded last when it was enqueued") {
  const Restored restored;
  const TestStream first, second;
  const TestEvent event;
  const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 0));
  OK(cudaStreamWaitEvent(second, event));  // never recorded: waits for nothing
  launch(add, 1, kCount, 0, first, x.data(), 1);
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event));
  launch(add, 1, kCount, 0, first, x.data(), 1);
  OK(cudaEventRecord(event, first));
  launch(copy, 1, kCount, 0, second, y.data(), x.data());
  OK(cudaStreamSynchronize(second));
  CHECK(y.get()[0] == 2);
  OK(cudaEventSynchronize(event));
  CHECK(x.get()[0] == 3);
}

TEST_CASE("the legacy default stream waits for blocking streams and they for it, not for others") {
  const Restored restored;
  for (const bool blocking : {true, false}) {
    const TestStream stream(blocking ? cudaStreamDefault : cudaStreamNonBlocking);
    const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 0));
    launch(add, 1, kCount, 0, stream, x.data(), 1);
    launch(copy, 1, kCount, 0, nullptr, y.data(), x.data());
    OK(cudaStreamSynchronize(nullptr));
    CHECK(y.get()[0] == (blocking ? 2 : 1));
    OK(cudaDeviceSynchronize());
    launch(add, 1, kCount, 0, nullptr, x.data(), 1);
    launch(copy, 1, kCount, 0, stream, y.data(), x.data());
    OK(cudaStreamSynchronize(stream));
    std::vector<int> seen(kCount);
    OK(cudaMemcpyAsync(seen.data(), y.data(), kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(seen[0] == (blocking ? 3 : 2));
    OK(cudaDeviceSynchronize());
  }
}

TEST_CASE("a copy reads pageable memory before it returns, and pinned memory when its stream gets there") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(kCount);
  std::vector<int> pageable(kCount, 1);
  const std::size_t bytes = kCount * sizeof(int);
  OK(cudaMemcpyAsync(x.data(), pageable.data(), bytes, cudaMemcpyHostToDevice, stream));
  pageable.assign(kCount, 2);
  OK(cudaStreamSynchronize(stream));
  CHECK(x.get()[0] == 1);

  const Pinned<int> pinned(kCount);
  std::fill_n(pinned.data(), kCount, 3);
  OK(cudaMemcpyAsync(x.data(), pinned.data(), bytes, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(x.get()[0] == 3);
}

TEST_CASE("a pinned buffer that is overwritten too early is copied as it is then") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(kCount);
  const Pinned<int> pinned(kCount);
  for (const bool waits : {true, false}) {
    std::fill_n(pinned.data(), kCount, 3);
    OK(cudaMemcpyAsync(x.data(), pinned.data(), pinned.bytes(), cudaMemcpyHostToDevice, stream));
    if (waits) OK(cudaStreamSynchronize(stream));
    std::fill_n(pinned.data(), kCount, 4);
    OK(cudaStreamSynchronize(stream));
    CHECK(x.get()[0] == (waits ? 3 : 4));
  }
}

TEST_CASE("a copy to pageable memory is done when it returns, one to pinned memory later") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kCount, 5));
  std::vector<int> pageable(kCount);
  const Pinned<int> pinned(kCount);
  pinned[0] = 0;
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  OK(cudaMemcpyAsync(pinned.data(), x.data(), pinned.bytes(), cudaMemcpyDeviceToHost, stream));
  CHECK(pinned[0] == 0);
  OK(cudaMemcpyAsync(pageable.data(), x.data(), pinned.bytes(), cudaMemcpyDeviceToHost, stream));
  CHECK(pageable[0] == 6);
  CHECK(pinned[0] == 6);
}

TEST_CASE(
    "the manual's rules for cudaMemcpy: within a device, and from pageable memory, the host does not wait") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 0));
  reset_counters();
  OK(cudaMemcpy(y.data(), x.data(), kCount * sizeof(int), cudaMemcpyDeviceToDevice));
  CHECK(counters().copied_on_device == 0);
  const std::vector<int> pageable(kCount, 4);
  OK(cudaMemcpy(x.data(), pageable.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(counters().copied_on_device == kCount * sizeof(int));
  CHECK(counters().copied_to_device == 0);
  CHECK(y.get()[0] == 1);
  CHECK(counters().copied_to_device == kCount * sizeof(int));
  CHECK(counters().copied_to_host == kCount * sizeof(int));
  OK(cudaMemset(y.data(), 0, kCount * sizeof(int)));
  CHECK(y.get()[0] == 0);
}

TEST_CASE("who polls gets on") {
  const Restored restored;
  const TestStream stream;
  const TestEvent event;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  OK(cudaEventQuery(event));
  for (int i = 0; i < 3; ++i) launch(add, 1, kCount, 0, stream, x.data(), 1);
  OK(cudaEventRecord(event, stream));
  int polls = 0;
  for (; cudaEventQuery(event) != cudaSuccess; ++polls) REQUIRE(cudaGetLastError() == cudaErrorNotReady);
  CHECK(polls == 4);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

TEST_CASE("a host function runs in its place of the stream, though nobody waits, and must not call CUDA") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  struct Seen {
    std::atomic<bool> ran = false;
    std::uint64_t kernels = 0;
    cudaError_t error = cudaSuccess;
  } seen;
  reset_counters();
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  OK(cudaLaunchHostFunc(
      stream,
      [](void* to) {
        Seen& seen = *static_cast<Seen*>(to);
        seen.kernels = counters().kernels;
        int device = 0;
        seen.error = cudaGetDevice(&device);
        seen.ran = true;
      },
      &seen));
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  while (!seen.ran) std::this_thread::yield();
  CHECK(seen.kernels == 1);
  CHECK(seen.error == cudaErrorNotPermitted);
  CHECK(counters().kernels == 1);
  OK(cudaStreamSynchronize(stream));
  CHECK(x.get()[0] == 3);
}

TEST_CASE("time passes between two events") {
  const Restored restored;
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault), without;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(start, stream));
  for (int i = 0; i < 100; ++i) launch(add, 1, kCount, 0, stream, x.data(), 1);
  OK(cudaEventRecord(end, stream));
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds > 0);
  OK(cudaEventRecord(without, stream));
  CHECK(cudaEventElapsedTime(&milliseconds, start, without) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a stream that is destroyed still does its work; its handle is nobody's") {
  const Restored restored;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  OK(cudaStreamDestroy(stream));
  OK(cudaDeviceSynchronize());
  CHECK(x.get()[0] == 2);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  launch(add, 1, kCount, 0, stream, x.data(), 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a kernel's stream must be the current device's, an event its stream's, a copy's may be any") {
  const Restored restored;
  machine.gpus = {0, 1};
  OK(cudaSetDevice(1));
  const TestStream of_second;
  const TestEvent event_of_second;
  OK(cudaSetDevice(0));
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  launch(add, 1, kCount, 0, of_second, x.data(), 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  const TestStream of_first;
  CHECK(cudaEventRecord(event_of_second, of_first) == cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(event_of_second, of_second));
  OK(cudaStreamWaitEvent(of_first, event_of_second));
  OK(cudaMemsetAsync(x.data(), 0, kCount * sizeof(int), of_second));
  std::thread([&] {
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
  }).join();
  OK(cudaStreamSynchronize(of_second));
  CHECK(x.get()[0] == 0);
}

TEST_CASE("host threads drive streams of their own") {
  const Restored restored;
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    constexpr int kThreads = 4;
    std::vector<int> results(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const TestStream compute, side;
        const TestEvent event;
        const OnDevice<int> x(kCount), y(kCount);
        const Pinned<int> in(kCount), out(kCount);
        for (int round = 0; round < 20; ++round) {
          std::fill_n(in.data(), kCount, t + round);
          OK(cudaMemcpyAsync(x.data(), in.data(), in.bytes(), cudaMemcpyHostToDevice, compute));
          launch(times, 1, kCount, 0, compute, x.data(), 3);
          OK(cudaEventRecord(event, compute));
          OK(cudaStreamWaitEvent(side, event));
          launch(copy, 1, kCount, 0, side, y.data(), x.data());
          OK(cudaMemcpyAsync(out.data(), y.data(), out.bytes(), cudaMemcpyDeviceToHost, side));
          OK(cudaStreamSynchronize(side));
          results[t] += out[kCount - 1];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < kThreads; ++t) CHECK(results[t] == 3 * (20 * t + 190));
  }
}

// Stands for another process: done once `open`.
struct Gate {
  std::atomic<bool> open = false;
  std::atomic<int> asked = 0;
  cudaError_t put_into(cudaStream_t stream) {
    Operation operation;
    operation.ask = [this] {
      ++asked;
      return open ? Progress::kDone : Progress::kNone;
    };
    return enqueue(stream, std::move(operation));
  }
};

TEST_CASE("what waits for another process holds up its stream and no other, under every policy") {
  const Restored restored;
  for (const Policy policy : kPolicies) {
    settings.streams = policy;
    const TestStream held_up, other;
    const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 1));
    Gate gate;
    OK(gate.put_into(held_up));
    launch(add, 1, kCount, 0, held_up, x.data(), 1);
    launch(add, 1, kCount, 0, other, y.data(), 1);
    std::thread waits([&] { CHECK(cudaStreamSynchronize(held_up) == cudaSuccess); });
    while (gate.asked < 3) std::this_thread::yield();
    OK(cudaStreamSynchronize(other));
    CHECK(y.get()[0] == 2);
    CHECK(cudaStreamQuery(held_up) == cudaErrorNotReady);
    gate.open = true;
    waits.join();
    CHECK(x.get()[0] == 2);
  }
}

TEST_CASE("what another process may wait for begins though nobody waits for it here") {
  const Restored restored;
  const TestStream first, second;
  const TestEvent event;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  Gate gate;
  gate.open = true;
  launch(add, 1, kCount, 0, first, x.data(), 1);
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event));
  OK(gate.put_into(second));
  launch(add, 1, kCount, 0, second, x.data(), 1);
  while (gate.asked == 0) std::this_thread::yield();
  CHECK(x.get()[0] == 2);  // with what it waits for, and not what is behind it
  OK(cudaDeviceSynchronize());
  CHECK(x.get()[0] == 3);
}

}  // namespace
