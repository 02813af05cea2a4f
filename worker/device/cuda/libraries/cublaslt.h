// cuBLASLt's functions as this program uses them.
#pragma once

#include <cublasLt.h>

#include <string>

namespace dtrun::worker::cuda {

struct CublasLt {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) get_status_name = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) matrix_layout_set_attribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoInit) matmul_algo_init = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) matmul_algo_check = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) matmul_algo_config_get_attribute = nullptr;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) matmul_algo_config_set_attribute = nullptr;

  std::string version;  // "13.1.0"
  std::string file;     // the library's file
};

// The first call opens the library; later ones return the same table. Throws WorkerError with EX_CONFIG if
// there is no cuBLASLt 13 (open.h). Any thread. A program may link another definition than that of
// cublaslt_loaded.cc.
const CublasLt& cublas_lt();

}  // namespace dtrun::worker::cuda
