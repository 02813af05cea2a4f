// Streams of the simulated device. Nothing runs when it is enqueued: an operation waits in its stream until
// somebody synchronises with it (or as settings.streams says), and then runs on the one thread that stands
// for the device. To ThreadSanitizer that thread is one more: memory that host and device use without
// synchronising is a data race.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace cuda_on_cpu {

// What was enqueued on a stream up to and including the operation of this number (1 is the first, 0 nothing).
struct Point {
  std::shared_ptr<CUstream_st> stream;
  std::uint64_t position = 0;
};

struct Operation {
  std::function<void()> run{};  // on the device's thread; none for a wait
  std::vector<Point> after{};   // begins when all of these are done
  bool host_function = false;
};

// From any thread. Errors: cudaErrorInvalidResourceHandle for a stream that does not exist, and the device's
// own once it is broken.
cudaError_t enqueue(cudaStream_t stream, Operation operation);

// Returns when all that was enqueued on `stream` is done.
cudaError_t wait_for(cudaStream_t stream);
cudaError_t wait_for(const std::vector<Point>& points);
// On any stream of any device.
cudaError_t wait_for_all();

// For tests: as wait_for, but ends the process with the name of an error.
void synchronize(cudaStream_t stream = nullptr);

}  // namespace cuda_on_cpu

// What a cudaStream_t points to. Guarded by the lock of streams.cc.
struct CUstream_st {
  int device = 0;
  // Waits for the legacy default stream, and that one for it, as all do that are not cudaStreamNonBlocking.
  bool blocking = true;
  std::deque<cuda_on_cpu::Operation> operations;  // not begun yet, but that the first may be running
  std::uint64_t enqueued = 0, done = 0;
};
