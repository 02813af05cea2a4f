// Work of streams runs as late as its waits allow, and the host gets no more than CUDA promises.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/cuda_on_cpu/device_test.h"

namespace dtrun::streams_test {

namespace {

using namespace cuda_on_cpu;

__global__ void add(int* x, int by) { x[threadIdx.x] += by; }
__global__ void copy(int* to, const int* from) { to[threadIdx.x] = from[threadIdx.x]; }

constexpr int kCount = 32;

TEST_CASE("nothing runs before somebody waits for it, and then no more than he waits for") {
  const Restored restored;
  const TestStream first, second;
  const OnDevice<int> x(std::vector<int>(kCount, 1));
  reset_counters();
  launch(add, 1, kCount, 0, first, x.data(), 1);
  launch(add, 1, kCount, 0, second, x.data(), 1);
  CHECK(counters().kernels_by_name.empty());
  OK(cudaStreamSynchronize(first));
  CHECK(counters().kernels_by_name.at("add") == 1);
  OK(cudaDeviceSynchronize());
  CHECK(counters().kernels_by_name.at("add") == 2);
  CHECK(x.get()[0] == 3);
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

TEST_CASE("a missing event wait is wrong every time as late as possible, and sometimes at random") {
  const Restored restored;
  CHECK(copied_behind_addition(true) == std::vector<int>(kCount, 2));
  for (int i = 0; i < 20; ++i) CHECK(copied_behind_addition(false) == std::vector<int>(kCount, 1));
  settings.streams = Policy::kRandom;
  int wrong = 0;
  for (settings.seed = 1; settings.seed <= 20; ++settings.seed) {
    CHECK(copied_behind_addition(true) == std::vector<int>(kCount, 2));
    wrong += copied_behind_addition(false) == std::vector<int>(kCount, 1);
  }
  CHECK(wrong > 0);
  CHECK(wrong < 20);
}

TEST_CASE("a copy from pageable memory has read it when it returns, one from pinned memory reads it late") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(kCount);
  std::vector<int> pageable(kCount, 1);
  OK(cudaMemcpyAsync(x.data(), pageable.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  pageable.assign(kCount, 2);
  OK(cudaStreamSynchronize(stream));
  CHECK(x.get()[0] == 1);
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

TEST_CASE("the legacy default stream waits for blocking streams, not for others") {
  const Restored restored;
  for (const bool blocking : {true, false}) {
    const TestStream stream(blocking ? cudaStreamDefault : cudaStreamNonBlocking);
    const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 0));
    launch(add, 1, kCount, 0, stream, x.data(), 1);
    launch(copy, 1, kCount, 0, nullptr, y.data(), x.data());
    OK(cudaStreamSynchronize(nullptr));
    CHECK(y.get()[0] == (blocking ? 2 : 1));
    OK(cudaDeviceSynchronize());
  }
}

TEST_CASE("a kernel's stream must be the current device's, and an event its stream's") {
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
  for (const Policy policy : {Policy::kAsLateAsPossible, Policy::kRandom}) {
    settings.streams = policy;
    const TestStream held_up, other;
    const TestEvent held;
    const OnDevice<int> x(std::vector<int>(kCount, 1)), y(std::vector<int>(kCount, 1));
    Gate gate;
    OK(gate.put_into(held_up));
    launch(add, 1, kCount, 0, held_up, x.data(), 1);
    OK(cudaEventRecord(held, held_up));
    launch(add, 1, kCount, 0, other, y.data(), 1);
    std::thread waits([&] { CHECK(cudaStreamSynchronize(held_up) == cudaSuccess); });
    while (gate.asked < 3) std::this_thread::yield();
    OK(cudaStreamSynchronize(other));
    CHECK(y.get()[0] == 2);
    CHECK(cudaEventQuery(held) == cudaErrorNotReady);
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

}  // namespace dtrun::streams_test
