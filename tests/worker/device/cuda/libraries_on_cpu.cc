// cuBLASLt's table, filled with the stand-in of tests/cuda_on_cpu.
#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/device/cuda/libraries/cublaslt.h"

namespace dtrun::worker::cuda {
namespace {

// The stand-in's reason for a fault replaces the status' own text.
const char* status_text(cublasStatus_t) {
  thread_local std::string text;
  text = cuda_on_cpu::matmul_refusal();
  return text.c_str();
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt table{
      .get_version = cublasLtGetVersion,
      .get_status_name = status_text,
      .get_status_string = status_text,
      .create = cublasLtCreate,
      .destroy = cublasLtDestroy,
      .matmul = cublasLtMatmul,
      .matmul_desc_create = cublasLtMatmulDescCreate,
      .matmul_desc_destroy = cublasLtMatmulDescDestroy,
      .matmul_desc_set_attribute = cublasLtMatmulDescSetAttribute,
      .matrix_layout_create = cublasLtMatrixLayoutCreate,
      .matrix_layout_destroy = cublasLtMatrixLayoutDestroy,
      .matmul_preference_create = cublasLtMatmulPreferenceCreate,
      .matmul_preference_destroy = cublasLtMatmulPreferenceDestroy,
      .matmul_preference_set_attribute = cublasLtMatmulPreferenceSetAttribute,
      .matmul_algo_get_heuristic = cublasLtMatmulAlgoGetHeuristic,
      .version = "13.1.0",
      .file = "tests/cuda_on_cpu",
  };
  return table;
}

}  // namespace dtrun::worker::cuda
