#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/libraries/cudnn.h"
#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {
namespace {

// The first that plans for a device that is described (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
constexpr std::size_t kOldest = 90800;

struct LoadedCudnn {
  std::optional<Cudnn> table;
  std::string why_not;
};

void fill_cudnn(Cudnn& table, Symbols& symbols) {
  symbols.get(table.get_version, "cudnnGetVersion");
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

LoadedCudnn load_cudnn() {
  const Library library{.name = "cuDNN",
                        .soname = "libcudnn.so.9",
                        .versions = "9 (from 9.8 on)",
                        .wheel = "nvidia-cudnn-cu13"};
  Cudnn table;
  try {
    table.file = open_library(
        library, [&](Symbols& symbols) { fill_cudnn(table, symbols); },
        [&]() -> std::string {
          const std::size_t number = table.get_version();
          table.version = version_text(number);
          return number >= kOldest && number / 10000 == CUDNN_MAJOR ? "" : "is version " + table.version;
        });
  } catch (const WorkerError& error) {
    return {.table = {}, .why_not = error.what()};
  }
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
