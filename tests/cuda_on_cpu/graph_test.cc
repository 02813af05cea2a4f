// Stream capture and graphs.
#include <atomic>
#include <string>
#include <thread>

#include "tests/cuda_on_cpu/device_test.h"

namespace {

using namespace cuda_on_cpu;

__global__ void plus(int* x, int by) { x[threadIdx.x] += by; }
__global__ void doubled(int* to, const int* from) { to[threadIdx.x] = 2 * from[threadIdx.x]; }

constexpr int kValues = 8;

// A graph that a test captured, ready to be launched.
class Captured {
 public:
  explicit Captured(cudaGraph_t graph) {
    OK(cudaGraphInstantiate(&exec_, graph, 0));
    OK(cudaGraphDestroy(graph));  // its executable graph lives on
  }
  ~Captured() { CHECK(cudaGraphExecDestroy(exec_) == cudaSuccess); }
  Captured(const Captured&) = delete;
  operator cudaGraphExec_t() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// y = 2 (x + 1) on a second stream, then x = x + 10 on the first; with `joins` or without what orders them.
cudaError_t capture_fork(cudaStream_t first, cudaStream_t second, int* x, int* y, bool orders,
                         cudaGraph_t* graph) {
  const TestEvent begun, added, copied;
  OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(begun, first));
  if (!orders) OK(cudaStreamWaitEvent(second, begun));
  launch(plus, 1, kValues, 0, first, x, 1);
  OK(cudaEventRecord(added, first));
  if (orders) OK(cudaStreamWaitEvent(second, added));
  launch(doubled, 1, kValues, 0, second, y, x);
  OK(cudaEventRecord(copied, second));
  if (orders) OK(cudaStreamWaitEvent(first, copied));
  launch(plus, 1, kValues, 0, first, x, 10);
  if (!orders) OK(cudaStreamWaitEvent(first, copied));
  return cudaStreamEndCapture(first, graph);
}

TEST_CASE("a graph replays what was captured, with arguments of then, as often as it is launched") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kValues, 0));
  const Pinned<int> seen(kValues);
  reset_counters();
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  int by = 3;
  launch(plus, 1, kValues, 0, stream, x.data(), by);
  by = 100;
  OK(cudaMemcpyAsync(seen.data(), x.data(), seen.bytes(), cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  const Captured captured(graph);
  OK(cudaStreamSynchronize(stream));
  CHECK(counters().kernels == 0);  // capturing runs nothing
  for (int i = 1; i <= 3; ++i) {
    OK(cudaGraphLaunch(captured, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(seen[kValues - 1] == 3 * i);
  }
  CHECK(counters().kernels == 3);
  CHECK(counters().graphs == 3);
  CHECK(counters().copied_to_host == 3 * seen.bytes());
}

TEST_CASE("events join streams within a graph, under every policy") {
  const Restored restored;
  const TestStream first, second;
  const OnDevice<int> x(kValues), y(kValues);
  cudaGraph_t graph = nullptr;
  OK(capture_fork(first, second, x.data(), y.data(), true, &graph));
  const Captured captured(graph);
  for (const Policy policy : {Policy::kAtOnce, Policy::kAsLateAsPossible, Policy::kRandom}) {
    settings.streams = policy;
    for (settings.seed = 1; settings.seed <= 20; ++settings.seed) {
      x.put(std::vector<int>(kValues, 5));
      OK(cudaGraphLaunch(captured, first));
      OK(cudaStreamSynchronize(first));
      CHECK(y.get()[0] == 12);
      CHECK(x.get()[0] == 16);
    }
  }
}

TEST_CASE("a missing wait within a graph gives wrong numbers") {
  const Restored restored;
  const TestStream first, second;
  const OnDevice<int> x(std::vector<int>(kValues, 5)), y(kValues);
  cudaGraph_t graph = nullptr;
  OK(capture_fork(first, second, x.data(), y.data(), false, &graph));
  const Captured captured(graph);
  OK(cudaGraphLaunch(captured, first));
  OK(cudaStreamSynchronize(first));
  CHECK(y.get()[0] != 12);
  CHECK(x.get()[0] == 16);
}

TEST_CASE("an event that a graph records for the outside is there before the graph is done, at each launch") {
  const Restored restored;
  const TestStream stream, outside;
  const TestEvent half;
  const OnDevice<int> x(kValues), y(kValues);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(plus, 1, kValues, 0, stream, x.data(), 1);
  OK(cudaEventRecordWithFlags(half, stream, cudaEventRecordExternal));
  launch(plus, 1, kValues, 0, stream, x.data(), 10);
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  const Captured captured(graph);
  x.put(std::vector<int>(kValues, 5));
  OK(cudaStreamWaitEvent(outside, half));  // it was never recorded: nothing to wait for
  OK(cudaStreamSynchronize(outside));
  CHECK(x.get()[0] == 5);
  for (int launches = 1; launches <= 2; ++launches) {
    x.put(std::vector<int>(kValues, 5));
    OK(cudaGraphLaunch(captured, stream));
    OK(cudaStreamWaitEvent(outside, half));
    launch(doubled, 1, kValues, 0, outside, y.data(), x.data());
    OK(cudaStreamSynchronize(outside));
    CHECK(y.get()[0] == 12);  // later nodes of the graph may be late
    OK(cudaStreamSynchronize(stream));
    CHECK(x.get()[0] == 16);
  }
}

TEST_CASE("a stream that was forked must be joined") {
  const Restored restored;
  const TestStream first, second;
  const TestEvent event;
  const OnDevice<int> x(std::vector<int>(kValues, 0));
  OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event));
  launch(plus, 1, kValues, 0, second, x.data(), 1);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(second, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event));
  launch(plus, 1, kValues, 0, second, x.data(), 1);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  OK(cudaStreamSynchronize(second));  // takes part no more
  CHECK(x.get()[0] == 0);
}

TEST_CASE("what would wait for the device is not allowed while a stream is captured") {
  const Restored restored;
  const TestStream stream, blocking(cudaStreamDefault), outside;
  const TestEvent before, within;
  const OnDevice<int> x(std::vector<int>(kValues, 0));
  OK(cudaEventRecord(before, outside));
  const auto ends = [&](cudaStream_t captured, auto call, cudaError_t expected) {
    OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    CHECK(call() == expected);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured, &graph) == cudaErrorStreamCaptureInvalidated);
  };
  void* pointer = nullptr;
  ends(
      stream, [&] { return cudaStreamSynchronize(stream); }, cudaErrorStreamCaptureUnsupported);
  ends(
      stream, [&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported);
  ends(
      stream, [&] { return cudaMalloc(&pointer, 8); }, cudaErrorStreamCaptureUnsupported);
  ends(
      stream, [&] { return cudaEventQuery(before); }, cudaErrorStreamCaptureUnsupported);
  ends(
      stream, [&] { return cudaStreamWaitEvent(stream, before); }, cudaErrorStreamCaptureIsolation);
  ends(
      blocking, [&] { return cudaMemsetAsync(x.data(), 0, 4, nullptr); }, cudaErrorStreamCaptureImplicit);
  // An event of a capture stands for nothing afterwards.
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  OK(cudaMalloc(&pointer, 8));
  OK(cudaEventRecord(within, stream));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphDestroy(graph));
  CHECK(cudaEventSynchronize(within) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(outside, within) == cudaErrorCapturedEvent);
  OK(cudaFree(pointer));
}

TEST_CASE("a host function in a graph runs at each launch, though nobody waits") {
  const Restored restored;
  const TestStream stream;
  std::atomic<int> calls = 0;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaLaunchHostFunc(
      stream, [](void* to) { ++*static_cast<std::atomic<int>*>(to); }, &calls));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  const Captured captured(graph);
  for (int launches = 1; launches <= 2; ++launches) {
    OK(cudaGraphLaunch(captured, stream));
    while (calls != launches) std::this_thread::yield();
  }
}

TEST_CASE("a graph's copy from pageable memory reads it at each launch") {
  const Restored restored;
  const TestStream stream;
  const OnDevice<int> x(std::vector<int>(kValues, 0));
  std::vector<int> from(kValues, 1);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemcpyAsync(x.data(), from.data(), kValues * sizeof(int), cudaMemcpyHostToDevice, stream));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  const Captured captured(graph);
  for (int value = 2; value < 4; ++value) {
    from.assign(kValues, value);
    OK(cudaGraphLaunch(captured, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(x.get()[0] == value);
  }
}

}  // namespace
