#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/libraries/cudnn.h"
#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {
namespace {

// The first version that plans for a described device (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
constexpr std::size_t kOldest = 90800;
constexpr std::size_t kCuda = 13;  // major version, that of the CUDA runtime which this program links

struct LoadedCudnn {
  std::optional<Cudnn> table;
  std::string why_not;
};

void fill_cudnn(Cudnn& table, Symbols& symbols) {
  symbols.get(table.get_version, "cudnnGetVersion");
  symbols.get(table.get_cudart_version, "cudnnGetCudartVersion");
  symbols.get(table.get_error_string, "cudnnGetErrorString");
  symbols.get(table.get_last_error_string, "cudnnGetLastErrorString");
  symbols.get(table.create, "cudnnCreate");
  symbols.get(table.destroy, "cudnnDestroy");
  symbols.get(table.set_stream, "cudnnSetStream");
  symbols.get(table.create_descriptor, "cudnnBackendCreateDescriptor");
  symbols.get(table.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  symbols.get(table.set_attribute, "cudnnBackendSetAttribute");
  symbols.get(table.get_attribute, "cudnnBackendGetAttribute");
  symbols.get(table.finalize, "cudnnBackendFinalize");
  symbols.get(table.execute, "cudnnBackendExecute");
}

// "", or the reason why the library is not suitable. Sets the version.
std::string objection_to(Cudnn& table) {
  const std::size_t number = table.get_version();
  table.version = version_text(number);
  if (number < kOldest || number / 10000 != CUDNN_MAJOR) return "is version " + table.version;
  // A library of the same name and version exists for CUDA 12, which would load another cuBLASLt into the
  // process.
  const std::size_t cuda = table.get_cudart_version() / 1000;
  return cuda == kCuda ? "" : "is for CUDA " + std::to_string(cuda);
}

// Opens NVRTC, with which cuDNN compiles kernels. cuDNN opens and closes NVRTC for each plan, also for a
// loaded one, which takes longer than the rest; with the library open already, that is only a look-up. If
// NVRTC is not found, cuDNN reports it when needed.
void keep_compiler_open() {
  const Library library{
      .name = "NVRTC", .soname = "libnvrtc.so.13", .versions = "13", .wheel = "nvidia-cuda-nvrtc"};
  void (*version)() = nullptr;
  try {
    open_library(
        library, [&](Symbols& symbols) { symbols.get(version, "nvrtcVersion"); },
        [] { return std::string(); });
  } catch (const WorkerError&) {
  }
}

LoadedCudnn load_cudnn() {
  const Library library{.name = "cuDNN",
                        .soname = "libcudnn.so.9",
                        .versions = "9 (from 9.8 on, for CUDA 13)",
                        .wheel = "nvidia-cudnn-cu13"};
  Cudnn table;
  try {
    table.file = open_library(
        library, [&](Symbols& symbols) { fill_cudnn(table, symbols); }, [&] { return objection_to(table); });
  } catch (const WorkerError& error) {
    return {.table = {}, .why_not = error.what()};
  }
  keep_compiler_open();
  return {.table = table, .why_not = ""};
}

const LoadedCudnn& loaded_cudnn() {
  static const LoadedCudnn loaded = load_cudnn();
  return loaded;
}

}  // namespace

const Cudnn* cudnn() { return loaded_cudnn().table ? &*loaded_cudnn().table : nullptr; }

const std::string& why_no_cudnn() { return loaded_cudnn().why_not; }

}  // namespace dtrun::worker::cuda
