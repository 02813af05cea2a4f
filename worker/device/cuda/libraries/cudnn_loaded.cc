#include "worker/base/error.h"
#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::worker::cuda {
namespace {

// The first version that plans for a described device (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
constexpr std::size_t kOldest = 90800;
constexpr std::size_t kCuda = 13;  // major version, that of the CUDA runtime which this program links

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

Loaded<Cudnn> load_cudnn() {
  const Library library{.name = "cuDNN",
                        .soname = "libcudnn.so.9",
                        .versions = "9 (from 9.8 on, for CUDA 13)",
                        .wheel = "nvidia-cudnn-cu13"};
  Loaded<Cudnn> loaded = load(library, objection_to);
  if (loaded.table) keep_compiler_open();
  return loaded;
}

const Loaded<Cudnn>& loaded_cudnn() {
  static const Loaded<Cudnn> loaded = load_cudnn();
  return loaded;
}

}  // namespace

const Cudnn* cudnn() { return loaded_cudnn().get(); }

const std::string& why_no_cudnn() { return loaded_cudnn().why_not; }

}  // namespace dtrun::worker::cuda
