#include "worker/device/cuda/stream.h"

#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {

void use_gpu(int gpu) {
  thread_local int current = -1;
  if (current == gpu) return;
  check(cudaSetDevice(gpu), "choosing it");
  current = gpu;
}

CudaStream::CudaStream(int gpu) : gpu_(gpu) {
  use_gpu(gpu_);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  for (cudaEvent_t& event : events_)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
}

// Ignores errors, which a failed GPU gives for every call.
CudaStream::~CudaStream() {
  for (auto* const event : events_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaStream::handle() const {
  use_gpu(gpu_);
  return stream_;
}

Event CudaStream::record() {
  ++recorded_;
  check(cudaEventRecord(events_[recorded_ % kEvents], handle()), "recording an event");
  return {.ticket = recorded_, .stream = this};
}

void CudaStream::after(const Event& event) {
  if (event.stream == nullptr || event.stream == this) return;
  const auto& other = dynamic_cast<const CudaStream&>(*event.stream);
  check(cudaStreamWaitEvent(handle(), other.events_[event.ticket % kEvents], 0), "waiting for a stream");
}

CudaEvent::CudaEvent() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
}

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

void CudaEvent::record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }

void CudaEvent::record_outside(cudaStream_t stream) {
  check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "recording an event");
}

void CudaEvent::make_wait(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "waiting for a stream");
}

void CudaStream::wait() { check(cudaStreamSynchronize(handle()), "computing"); }

}  // namespace dtrun::worker::cuda
