// Stream capture: calls that would enqueue work add nodes to a graph instead. A launch of it enqueues them
// one behind the other, in an order that their edges allow.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/streams.h"

namespace cuda_on_cpu {

// Arguments of captured kernels and copies are in their operations, by value.
struct Node {
  Operation operation;
  std::vector<std::size_t> after{};        // nodes before it
  std::shared_ptr<CUevent_st> event = {};  // that it records, for streams outside
};
using Nodes = std::vector<Node>;

// A capture that goes on. Guarded by the scheduler's lock, as all here but replay().
struct Capture {
  Nodes nodes;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalid = false, ended = false;
  std::vector<std::shared_ptr<CUstream_st>> streams;  // those that take part, the origin first
};

void begin_capture(const std::shared_ptr<CUstream_st>& stream, cudaStreamCaptureMode mode);
cudaError_t end_capture(const std::shared_ptr<CUstream_st>& stream, Nodes* nodes);
// Adds the operation to the stream's capture instead of its queue.
cudaError_t capture(CUstream_st& stream, Operation operation, std::shared_ptr<CUevent_st> event = {});
// cudaStreamWaitEvent for a stream or an event that takes part in a capture.
cudaError_t capture_wait(const std::shared_ptr<CUstream_st>& stream, const CUevent_st& event);

// The nodes in an order that their edges allow: under Policy::kAsLateAsPossible the last first that may
// begin, else at random by `seed`.
std::vector<std::size_t> order_of(const Nodes& nodes, std::uint64_t seed);

}  // namespace cuda_on_cpu

struct CUgraph_st {
  cuda_on_cpu::Nodes nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const cuda_on_cpu::Nodes> nodes;
};
