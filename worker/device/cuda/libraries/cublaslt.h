// cuBLASLt's functions as this program uses them.
#pragma once

#include <cublasLt.h>

#include <string>

#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {

#define DTRUN_CUBLAS_LT(F)                                                 \
  F(get_version, cublasLtGetVersion)                                       \
  F(get_status_name, cublasLtGetStatusName)                                \
  F(get_status_string, cublasLtGetStatusString)                            \
  F(create, cublasLtCreate)                                                \
  F(destroy, cublasLtDestroy)                                              \
  F(matmul, cublasLtMatmul)                                                \
  F(matmul_desc_create, cublasLtMatmulDescCreate)                          \
  F(matmul_desc_destroy, cublasLtMatmulDescDestroy)                        \
  F(matmul_desc_set_attribute, cublasLtMatmulDescSetAttribute)             \
  F(matrix_layout_create, cublasLtMatrixLayoutCreate)                      \
  F(matrix_layout_destroy, cublasLtMatrixLayoutDestroy)                    \
  F(matmul_preference_create, cublasLtMatmulPreferenceCreate)              \
  F(matmul_preference_destroy, cublasLtMatmulPreferenceDestroy)            \
  F(matmul_preference_set_attribute, cublasLtMatmulPreferenceSetAttribute) \
  F(matmul_algo_get_heuristic, cublasLtMatmulAlgoGetHeuristic)

struct CublasLt {
  DTRUN_TABLE_OF(DTRUN_CUBLAS_LT)

  std::string version;  // "13.1.0"
  std::string file;     // the library's file
};

// The first call opens the library; later ones return the same table. Throws WorkerError with EX_CONFIG if
// there is no cuBLASLt 13 (open.h). Any thread. A program may link another definition than that of
// cublaslt_loaded.cc.
const CublasLt& cublas_lt();

}  // namespace dtrun::worker::cuda
