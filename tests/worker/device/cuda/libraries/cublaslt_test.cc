// cuBLASLt as it is installed here. It loads and tells its version without a GPU.
#include "worker/device/cuda/libraries/cublaslt.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/support/skip.h"
#include "worker/base/error.h"

namespace dtrun::cublaslt_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda;

TEST_CASE("cuBLASLt is found, and looked for once") {
  const CublasLt* there = nullptr;
  try {
    there = &cublas_lt();
  } catch (const WorkerError& error) {
    return test::skip(error.what());
  }
  CHECK(&cublas_lt() == there);
  std::printf("cuBLASLt %s at %s\n", there->version.c_str(), there->file.c_str());
  CHECK(there->version.starts_with("13."));
  CHECK(there->get_version() / 10000 == 13);
  CHECK(there->file.find('/') == 0);
  CHECK(std::string(there->get_status_name(CUBLAS_STATUS_NOT_SUPPORTED)) == "CUBLAS_STATUS_NOT_SUPPORTED");
  cublasLtMatmulPreference_t preference = nullptr;
  CHECK(there->matmul_preference_create(&preference) == CUBLAS_STATUS_SUCCESS);
  CHECK(there->matmul_preference_destroy(preference) == CUBLAS_STATUS_SUCCESS);
}

}  // namespace dtrun::cublaslt_test
