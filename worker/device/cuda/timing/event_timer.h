// Times work that is enqueued on a GPU, with an event before it and one behind it on its stream. The events
// are read once all work is done, so that no work waits for the host.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker/device/cuda/stream.h"
#include "worker/device/op_timer.h"

namespace dtrun::worker::cuda {

// The timer of this process' GPU number `gpu`. on() and Scope: any thread.
class EventTimer final : public OpTimer {
 public:
  explicit EventTimer(int gpu) : gpu_(gpu) {}
  ~EventTimer() override;
  EventTimer(const EventTimer&) = delete;

  void start() override;
  void read() override;
  void stop() override { on_ = false; }
  const OpTimes& times() const override { return times_; }

  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Times the work enqueued on `stream` until the end of the scope, if the timer is on: then describe()
  // returns its TimedOp.
  class Scope {
   public:
    template <typename Describe>
    Scope(EventTimer& timer, const CudaStream& stream, const Describe& describe) {
      if (!timer.on()) return;
      timer_ = &timer, stream_ = &stream;
      begin_ = timer.begin(stream, describe());
    }
    ~Scope() {
      if (timer_ != nullptr) timer_->end(begin_, *stream_);
    }
    Scope(const Scope&) = delete;

   private:
    EventTimer* timer_ = nullptr;
    const CudaStream* stream_ = nullptr;
    std::size_t begin_ = 0;
  };

 private:
  // An operation whose events, a pair of events_, were not read yet.
  struct Pending {
    int op, stream;
  };

  std::size_t begin(const CudaStream& stream, const TimedOp& op);
  void end(std::size_t pending, const CudaStream& stream);
  void make_events(std::size_t count);
  int number_of(const CudaStream& stream);
  int number_of(const TimedOp& op);
  double since_base(cudaEvent_t event) const;
  void move_base();

  const int gpu_;
  std::atomic<bool> on_{false};
  std::mutex mutex_;  // guards the members below
  OpTimes times_;
  std::map<const CudaStream*, int> streams_;
  std::map<TimedOp, int> ops_;
  std::vector<Pending> pending_;
  std::vector<cudaEvent_t> events_;  // two for each operation, reused after each read()
  // CUDA gives times as floats of milliseconds, so each is measured from a near event, to keep it exact.
  cudaStream_t clock_ = nullptr;
  std::array<cudaEvent_t, 2> bases_{};  // the one in use, and the next one
  double base_ = 0;                     // seconds, of the event in use
};

// Work on whole vectors. Bytes of the GPU's memory.
inline TimedOp vector_op(const char* what, std::size_t read, std::size_t written) {
  return {.kind = {what, ""},
          .node = -1,
          .cost = {.flops = 0, .read = static_cast<double>(read), .written = static_cast<double>(written)}};
}

}  // namespace dtrun::worker::cuda
