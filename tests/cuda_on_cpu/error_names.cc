// CUDA's errors, as far as they occur here.
#include <cuda_runtime_api.h>

namespace {

struct Text {
  cudaError_t error;
  const char* name;
  const char* description;
};

#define ERROR_TEXT(name, description) \
  { name, #name, description }
constexpr Text kTexts[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR_TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ERROR_TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR_TEXT(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorIllegalState,
               "the operation cannot be performed in the present state of the object it was called on"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR_TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR_TEXT(cudaErrorAssert, "device-side assert triggered"),
    ERROR_TEXT(cudaErrorHardwareStackError, "hardware stack error"),
    ERROR_TEXT(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    ERROR_TEXT(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    ERROR_TEXT(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR_TEXT(cudaErrorNotPermitted, "operation not permitted"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorSystemNotReady, "system not yet initialized"),
    ERROR_TEXT(cudaErrorSystemDriverMismatch,
               "system has unsupported display driver / cuda driver combination"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR_TEXT(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR_TEXT(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR_TEXT(cudaErrorUnknown, "unknown error"),
};
#undef ERROR_TEXT

const Text* find(cudaError_t error) {
  for (const Text& text : kTexts) {
    if (text.error == error) return &text;
  }
  return nullptr;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const Text* const text = find(error);
  return text ? text->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const Text* const text = find(error);
  return text ? text->description : "unrecognized error code";
}
