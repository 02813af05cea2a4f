// Streams of the simulated devices. Nothing runs when it is enqueued: an operation waits in its stream until
// a caller synchronises with it (or as settings.streams says), and then runs on the one thread for all
// devices. To ThreadSanitizer that thread is one more: memory that host and device use without synchronising
// is a data race.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace cuda_on_cpu {

// The work on a stream up to and including the operation of this number (1 is the first, 0 none).
struct Point {
  std::shared_ptr<CUstream_st> stream;
  std::uint64_t position = 0;
};

// The progress of an operation that waits for a party outside the devices.
enum class Progress { kNone, kSome, kDone };

struct Operation {
  std::function<void()> run{};  // on the devices' thread; none for a wait
  std::vector<Point> after{};   // begins when all of these are done
  bool launch = false;          // a kernel's or matmul's, which needs a stream of the current device
  // Instead of `run`, for what waits for another process: asked on the devices' thread until it is done, and
  // must not wait itself. Other streams go on meanwhile. It opens device memory itself. It begins soon even
  // if no caller here waits for its stream, since the other process may be waiting for it.
  std::function<Progress()> ask{};
};

// From any thread. Errors: cudaErrorInvalidResourceHandle for a stream that does not exist, those of stream
// capture, and the device's own once it is broken. `blocks`: returns when the operation is done. `point`, if
// given, is where it stands in its stream.
cudaError_t enqueue(cudaStream_t stream, Operation operation, bool blocks = false, Point* point = nullptr);

// Returns when the work up to `point` is done, or the device's error if that is broken.
cudaError_t wait_for(const Point& point);

// cudaSuccess, or what every function returns that can fail: a planned fault, cudaErrorNoDevice, the error of
// a broken device.
cudaError_t usable();

}  // namespace cuda_on_cpu
