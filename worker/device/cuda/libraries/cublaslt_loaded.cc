#include "worker/device/cuda/libraries/cublaslt.h"

namespace dtrun::worker::cuda {
namespace {

std::string objection_to(CublasLt& table) {
  const std::size_t number = table.get_version();
  table.version = version_text(number);
  return number / 10000 == CUBLAS_VER_MAJOR ? "" : "is version " + table.version;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt table = open_table(
      {.name = "cuBLASLt", .soname = "libcublasLt.so.13", .versions = "13", .wheel = "nvidia-cublas"},
      objection_to);
  return table;
}

}  // namespace dtrun::worker::cuda
