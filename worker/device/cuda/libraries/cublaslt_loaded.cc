#include "worker/device/cuda/libraries/cublaslt.h"
#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {
namespace {

void fill_cublas_lt(CublasLt& table, Symbols& symbols) {
  symbols.get(table.get_version, "cublasLtGetVersion");
  symbols.get(table.get_status_name, "cublasLtGetStatusName");
  symbols.get(table.get_status_string, "cublasLtGetStatusString");
  symbols.get(table.create, "cublasLtCreate");
  symbols.get(table.destroy, "cublasLtDestroy");
  symbols.get(table.matmul, "cublasLtMatmul");
  symbols.get(table.matmul_desc_create, "cublasLtMatmulDescCreate");
  symbols.get(table.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  symbols.get(table.matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  symbols.get(table.matrix_layout_create, "cublasLtMatrixLayoutCreate");
  symbols.get(table.matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
  symbols.get(table.matrix_layout_set_attribute, "cublasLtMatrixLayoutSetAttribute");
  symbols.get(table.matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  symbols.get(table.matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  symbols.get(table.matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  symbols.get(table.matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  symbols.get(table.matmul_algo_init, "cublasLtMatmulAlgoInit");
  symbols.get(table.matmul_algo_check, "cublasLtMatmulAlgoCheck");
  symbols.get(table.matmul_algo_config_get_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  symbols.get(table.matmul_algo_config_set_attribute, "cublasLtMatmulAlgoConfigSetAttribute");
}

CublasLt load_cublas_lt() {
  const Library library{
      .name = "cuBLASLt", .soname = "libcublasLt.so.13", .versions = "13", .wheel = "nvidia-cublas"};
  CublasLt table;
  table.file = open_library(
      library, [&](Symbols& symbols) { fill_cublas_lt(table, symbols); },
      [&]() -> std::string {
        const std::size_t number = table.get_version();
        table.version = version_text(number);
        return number / 10000 == CUBLAS_VER_MAJOR ? "" : "is version " + table.version;
      });
  return table;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt table = load_cublas_lt();
  return table;
}

}  // namespace dtrun::worker::cuda
