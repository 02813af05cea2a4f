// Stream capture and graphs: waits that are missing, and what CUDA refuses.
#include "tests/cuda_on_cpu/device_test.h"

namespace dtrun::graph_test {

namespace {

using namespace cuda_on_cpu;

__global__ void plus(int* x, int by) { x[threadIdx.x] += by; }
__global__ void doubled(int* to, const int* from) { to[threadIdx.x] = 2 * from[threadIdx.x]; }

constexpr int kValues = 8;

// y = 2 (x + 1) on a second stream, then x = x + 10 on the first; `orders`: by events.
void capture_fork(cudaStream_t first, cudaStream_t second, int* x, int* y, bool orders, cudaGraph_t* graph) {
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
  OK(cudaStreamEndCapture(first, graph));
}

TEST_CASE("events order streams within a graph, and a missing wait gives wrong numbers") {
  const Restored restored;
  const TestStream first, second;
  const OnDevice<int> x(kValues), y(kValues);
  for (const bool orders : {true, false}) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t captured = nullptr;
    capture_fork(first, second, x.data(), y.data(), orders, &graph);
    OK(cudaGraphInstantiate(&captured, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (const Policy policy : {Policy::kAsLateAsPossible, Policy::kRandom}) {
      if (policy == Policy::kRandom && !orders) continue;
      settings.streams = policy;
      for (settings.seed = 1; settings.seed <= 20; ++settings.seed) {
        x.put(std::vector<int>(kValues, 5));
        OK(cudaGraphLaunch(captured, first));
        OK(cudaStreamSynchronize(first));
        CHECK((y.get()[0] == 12) == orders);
        CHECK(x.get()[0] == 16);
      }
    }
    settings.streams = Policy::kAsLateAsPossible;
    OK(cudaGraphExecDestroy(captured));
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
  const auto ends = [&](cudaStream_t captured, cudaError_t expected, auto call) {
    OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    CHECK(call() == expected);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured, &graph) == cudaErrorStreamCaptureInvalidated);
  };
  void* pointer = nullptr;
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  ends(stream, unsupported, [&] { return cudaStreamSynchronize(stream); });
  ends(stream, unsupported, [&] { return cudaDeviceSynchronize(); });
  ends(stream, unsupported, [&] { return cudaMalloc(&pointer, 8); });
  ends(stream, unsupported, [&] { return cudaEventQuery(before); });
  ends(stream, cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, before); });
  ends(blocking, cudaErrorStreamCaptureImplicit, [&] { return cudaMemsetAsync(x.data(), 0, 4, nullptr); });
  // An event of a capture stands for nothing afterwards.
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(within, stream));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphDestroy(graph));
  CHECK(cudaEventSynchronize(within) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(outside, within) == cudaErrorCapturedEvent);
}

}  // namespace

}  // namespace dtrun::graph_test
