// cudart's functions on streams, events and graphs.
#include <cuda_runtime_api.h>

#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/scheduler.h"

using cuda_on_cpu::remember;
using cuda_on_cpu::scheduler;
using cuda_on_cpu::usable;

namespace {

// `call`, unless there is no device, it is broken, or a planned fault says otherwise.
template <typename Call>
cudaError_t guarded(Call call) {
  const cudaError_t error = usable();
  return remember(error != cudaSuccess ? error : call());
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return guarded([&] {
    if (!stream || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
    *stream = scheduler().create_stream(cuda_on_cpu::current_device(), flags != cudaStreamNonBlocking);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&] { return scheduler().destroy_stream(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&] { return scheduler().wait_for_stream(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return guarded([&] { return scheduler().wait_in_stream(stream, event); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return guarded([&] {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (!event || (flags & ~known) != 0) return cudaErrorInvalidValue;
    *event = scheduler().create_event(cuda_on_cpu::current_device(), (flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return guarded([&] { return scheduler().destroy_event(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return guarded([&] {
    if (flags != cudaEventRecordDefault && flags != cudaEventRecordExternal) return cudaErrorInvalidValue;
    return scheduler().record(event, stream, flags == cudaEventRecordExternal);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return guarded([&] {
    const cudaError_t error = scheduler().allowed_in_capture();
    return error != cudaSuccess ? error : scheduler().query_event(event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&] { return scheduler().wait_for_event(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return guarded([&] { return scheduler().elapsed(milliseconds, start, end); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return guarded([&] { return scheduler().begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return guarded([&] { return scheduler().end_capture(stream, graph); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long /*flags*/) {
  return guarded([&] { return scheduler().instantiate(graph, exec); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return guarded([&] { return scheduler().launch(exec, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return guarded([&] { return scheduler().destroy(exec); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return guarded([&] { return scheduler().destroy(graph); });
}
