// Streams and events, and the thread that carries them out: one thread for all simulated devices, which runs
// when a caller waits, and then carries out only the operations that the wait needs.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/graph.h"
#include "tests/cuda_on_cpu/streams.h"

// The objects behind a cudaStream_t and a cudaEvent_t. Guarded by the scheduler's lock.
struct CUstream_st {
  int device = 0;
  // Waits for the legacy default stream, and that one for it, as all do that are not cudaStreamNonBlocking.
  bool blocking = true;
  std::deque<cuda_on_cpu::Operation> operations;  // that are not done
  std::uint64_t enqueued = 0, done = 0;
  // State of the first operation, if that is polled: whether it has begun, and in which round it was asked
  // last.
  bool begun = false;
  std::uint64_t asked = 0;
  std::shared_ptr<cuda_on_cpu::Capture> capture;  // that it takes part in
  std::vector<std::size_t> last_nodes;            // of the capture: the next node goes behind these
};

struct CUevent_st {
  using Time = std::optional<std::chrono::steady_clock::time_point>;
  int device = 0;
  bool timing = true;
  cuda_on_cpu::Point point;  // that was recorded last
  std::shared_ptr<Time> time;
  std::shared_ptr<cuda_on_cpu::Capture> capture;  // if it was recorded in one
  std::vector<std::size_t> nodes;
};

namespace cuda_on_cpu {

// Any thread may call any function. All return CUDA's errors.
class Scheduler {
 public:
  cudaStream_t create_stream(int device, bool blocking);
  cudaError_t destroy_stream(cudaStream_t stream);  // its remaining operations still run
  cudaError_t enqueue(cudaStream_t stream, Operation operation, bool blocks, Point* point);
  cudaError_t wait_for(const Point& point);
  cudaError_t wait_for_stream(cudaStream_t stream);
  cudaError_t wait_for_device(int device);
  // cudaErrorInvalidResourceHandle if there is no such stream.
  cudaError_t check_stream(cudaStream_t stream);

  cudaEvent_t create_event(int device, bool timing);
  cudaError_t destroy_event(cudaEvent_t event);
  // `external`: in a capture, a node of the graph that records the event each time that it runs.
  cudaError_t record(cudaEvent_t event, cudaStream_t stream, bool external);
  cudaError_t wait_in_stream(cudaStream_t stream, cudaEvent_t event);
  cudaError_t wait_for_event(cudaEvent_t event);
  // One operation runs at each call that returns cudaErrorNotReady, so that polling makes progress.
  cudaError_t query_event(cudaEvent_t event);
  cudaError_t elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph);
  bool is_capturing(cudaStream_t stream);
  // cudaErrorStreamCaptureUnsupported if a capture forbids the calling thread what could wait for the device,
  // such as cudaMalloc; the capture is then invalid.
  cudaError_t allowed_in_capture();
  cudaError_t instantiate(cudaGraph_t graph, cudaGraphExec_t* exec);
  cudaError_t launch(cudaGraphExec_t exec, cudaStream_t stream);
  cudaError_t destroy(cudaGraph_t graph);
  cudaError_t destroy(cudaGraphExec_t exec);

  Alive alive();

 private:
  using StreamPtr = std::shared_ptr<CUstream_st>;
  using EventPtr = std::shared_ptr<CUevent_st>;
  using Lock = std::unique_lock<std::mutex>;

  // The points that a host thread waits for.
  struct Demand {
    std::vector<Point> points;
    // Others give up once all that is left waits for another process, or after so many operations.
    bool waits = true;
    int most_operations = -1;
    bool met = false;
  };

  StreamPtr find(cudaStream_t stream);
  EventPtr find(cudaEvent_t event);
  const StreamPtr& legacy(int device);
  cudaError_t put(Lock& lock, const StreamPtr& stream, Operation operation, bool blocks);
  cudaError_t put_record(Lock& lock, const StreamPtr& stream, CUevent_st& event);
  void order_with_legacy(const StreamPtr& stream, Operation& operation);
  cudaError_t meet(Lock& lock, std::vector<Point> points, bool waits = true, int most_operations = -1);
  cudaError_t query(Lock& lock, const Point& point);
  void wake_device();
  [[noreturn]] void live();
  bool serve_demands(Lock& lock);
  bool carry_out(Lock& lock, const std::vector<Point>& points, int most_operations);
  Progress do_first(Lock& lock, CUstream_st& stream);
  StreamPtr pick(Point wanted);
  bool can_begin(const CUstream_st& stream) const;
  bool ask_begun(Lock& lock);
  void begin_unasked(Lock& lock);
  void drop_all();
  std::uint64_t random(std::uint64_t below);

  std::mutex mutex_;              // guards all below, every stream, event and capture
  std::condition_variable work_;  // for the devices' thread
  std::condition_variable met_;   // for those who wait
  std::deque<Demand*> demands_;
  std::vector<StreamPtr> legacy_;  // by device
  std::map<cudaStream_t, StreamPtr> streams_;
  std::map<cudaEvent_t, EventPtr> events_;
  std::map<cudaGraph_t, std::unique_ptr<CUgraph_st>> graphs_;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> execs_;
  std::vector<std::weak_ptr<Capture>> captures_;
  std::vector<StreamPtr> busy_;  // those with operations
  int to_ask_ = 0;               // operations enqueued that wait for another process
  std::uint64_t round_ = 0;      // of the devices' thread, which polls each operation once per round
  bool started_ = false;
  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

// Lives as long as its thread, which nobody ends.
Scheduler& scheduler();

}  // namespace cuda_on_cpu
