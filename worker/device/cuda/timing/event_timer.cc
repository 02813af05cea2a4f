#include "worker/device/cuda/timing/event_timer.h"

#include <utility>

#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {

// Ignores errors, which a failed GPU gives for every call.
EventTimer::~EventTimer() {
  for (auto* const event : events_) cudaEventDestroy(event);
  if (clock_ == nullptr) return;
  for (auto* const event : bases_) cudaEventDestroy(event);
  cudaStreamDestroy(clock_);
}

void EventTimer::start() {
  std::lock_guard lock(mutex_);
  use_gpu(gpu_);
  pending_.clear();
  times_ = {};
  ops_.clear();
  streams_.clear();
  base_ = 0;
  if (clock_ == nullptr) {
    check(cudaStreamCreateWithFlags(&clock_, cudaStreamNonBlocking), "making a stream");
    for (cudaEvent_t& base : bases_) check(cudaEventCreate(&base), "making an event");
  }
  check(cudaEventRecord(bases_[0], clock_), "recording an event");
  check(cudaEventSynchronize(bases_[0]), "reading a time");
  on_ = true;
}

std::size_t EventTimer::begin(const CudaStream& stream, const TimedOp& op) {
  std::lock_guard lock(mutex_);
  const std::size_t pending = pending_.size();
  make_events(2 * pending + 2);
  pending_.push_back({.op = number_of(op), .stream = number_of(stream)});
  check(cudaEventRecord(events_[2 * pending], stream.handle()), "recording an event");
  return pending;
}

// Runs at the end of a scope, where it must not throw: read() reports a failure of the GPU.
void EventTimer::end(std::size_t pending, const CudaStream& stream) {
  std::lock_guard lock(mutex_);
  cudaEventRecord(events_[2 * pending + 1], stream.handle());
}

// The first step after start() makes the events; later steps reuse them.
void EventTimer::make_events(std::size_t count) {
  use_gpu(gpu_);
  while (events_.size() < count) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "making an event");
    events_.push_back(event);
  }
}

int EventTimer::number_of(const CudaStream& stream) {
  const auto [found, is_new] = streams_.try_emplace(&stream, static_cast<int>(streams_.size()));
  if (is_new)
    times_.streams.push_back(stream.name().empty() ? "stream " + std::to_string(found->second)
                                                   : stream.name());
  return found->second;
}

int EventTimer::number_of(const TimedOp& op) {
  const auto [found, is_new] = ops_.try_emplace(op, static_cast<int>(ops_.size()));
  if (is_new) times_.ops.push_back(op);
  return found->second;
}

double EventTimer::since_base(cudaEvent_t event) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, bases_[0], event), "reading a time");
  return static_cast<double>(milliseconds) * 1e-3;
}

void EventTimer::read() {
  std::lock_guard lock(mutex_);
  use_gpu(gpu_);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    cudaEvent_t begin = events_[2 * i], end = events_[2 * i + 1];
    check(cudaEventSynchronize(end), "reading a time");
    times_.times.push_back({.op = pending_[i].op,
                            .stream = pending_[i].stream,
                            .begin = base_ + since_base(begin),
                            .end = base_ + since_base(end)});
  }
  pending_.clear();
  move_base();
}

void EventTimer::move_base() {
  check(cudaEventRecord(bases_[1], clock_), "recording an event");
  check(cudaEventSynchronize(bases_[1]), "reading a time");
  base_ += since_base(bases_[1]);
  std::swap(bases_[0], bases_[1]);
}

}  // namespace dtrun::worker::cuda
