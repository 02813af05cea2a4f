// CUDA's errors, as far as they occur here. Their texts are their names.
#include <cuda_runtime_api.h>

#define DTRUN_NAME(error) \
  case error:             \
    return #error

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    DTRUN_NAME(cudaSuccess);
    DTRUN_NAME(cudaErrorInvalidValue);
    DTRUN_NAME(cudaErrorMemoryAllocation);
    DTRUN_NAME(cudaErrorInvalidConfiguration);
    DTRUN_NAME(cudaErrorInvalidMemcpyDirection);
    DTRUN_NAME(cudaErrorInsufficientDriver);
    DTRUN_NAME(cudaErrorNoDevice);
    DTRUN_NAME(cudaErrorInvalidDevice);
    DTRUN_NAME(cudaErrorECCUncorrectable);
    DTRUN_NAME(cudaErrorInvalidResourceHandle);
    DTRUN_NAME(cudaErrorIllegalState);
    DTRUN_NAME(cudaErrorNotReady);
    DTRUN_NAME(cudaErrorIllegalAddress);
    DTRUN_NAME(cudaErrorHostMemoryAlreadyRegistered);
    DTRUN_NAME(cudaErrorHostMemoryNotRegistered);
    DTRUN_NAME(cudaErrorStreamCaptureUnsupported);
    DTRUN_NAME(cudaErrorStreamCaptureInvalidated);
    DTRUN_NAME(cudaErrorStreamCaptureMerge);
    DTRUN_NAME(cudaErrorStreamCaptureUnmatched);
    DTRUN_NAME(cudaErrorStreamCaptureUnjoined);
    DTRUN_NAME(cudaErrorStreamCaptureIsolation);
    DTRUN_NAME(cudaErrorStreamCaptureImplicit);
    DTRUN_NAME(cudaErrorCapturedEvent);
    DTRUN_NAME(cudaErrorStreamCaptureWrongThread);
    default:
      return "an error that the stand-in does not have";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
