// A libcuda.so.1 for machines without a GPU: cuDNN loads the driver's library before it plans anything, also
// for a device that is only described to it, and loads into it the kernels that it has compiled. Here nothing
// is loaded and nothing runs. Functions are declared with the arguments that they look at.
#include <cstdint>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kStubLibrary = 34;  // CUresult

// A driver's object: never looked at, but not null.
void* const kSomething = reinterpret_cast<void*>(16);

int nothing() { return kSuccess; }

}  // namespace

extern "C" {

int cuInit() { return kStubLibrary; }
int cuGetExportTable() { return kStubLibrary; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuLibraryLoadData(void** library) {
  *library = kSomething;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = kSomething;
  return kSuccess;
}
int cuKernelGetFunction(void** function) {
  *function = kSomething;
  return kSuccess;
}

int cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int* found) {
  const struct {
    const char* name;
    void* function;
  } kKnown[] = {
      {"cuInit", reinterpret_cast<void*>(cuInit)},
      {"cuGetExportTable", reinterpret_cast<void*>(cuGetExportTable)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
      {"cuLibraryLoadData", reinterpret_cast<void*>(cuLibraryLoadData)},
      {"cuLibraryGetKernel", reinterpret_cast<void*>(cuLibraryGetKernel)},
      {"cuKernelGetFunction", reinterpret_cast<void*>(cuKernelGetFunction)},
      {"cuGetProcAddress", reinterpret_cast<void*>(cuGetProcAddress_v2)},
  };
  *function = reinterpret_cast<void*>(nothing);
  for (const auto& known : kKnown)
    if (std::strcmp(name, known.name) == 0) *function = known.function;
  if (found != nullptr) *found = kSuccess;
  return kSuccess;
}

// The others that cuDNN looks up by name.
int cuCtxGetCurrent() { return kSuccess; }
int cuCtxGetLimit() { return kSuccess; }
int cuCtxPopCurrent() { return kSuccess; }
int cuCtxPushCurrent() { return kSuccess; }
int cuDeviceGet() { return kSuccess; }
int cuDeviceGetCount() { return kSuccess; }
int cuGetErrorName() { return kSuccess; }
int cuGetErrorString() { return kSuccess; }
int cuKernelGetAttribute() { return kSuccess; }
int cuKernelSetAttribute() { return kSuccess; }
int cuLaunchCooperativeKernel() { return kSuccess; }
int cuLaunchKernel() { return kSuccess; }
int cuLaunchKernelEx() { return kSuccess; }
int cuLibraryLoadFromFile() { return kSuccess; }
int cuLibraryUnload() { return kSuccess; }
int cuLinkAddData() { return kSuccess; }
int cuLinkComplete() { return kSuccess; }
int cuLinkCreate() { return kSuccess; }
int cuLinkDestroy() { return kSuccess; }
int cuOccupancyMaxPotentialClusterSize() { return kSuccess; }
int cuStreamGetCtx() { return kSuccess; }

}  // extern "C"
