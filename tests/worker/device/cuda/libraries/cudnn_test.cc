// cuDNN as it is installed here. It loads and tells its version without a GPU.
#include "worker/device/cuda/libraries/cudnn.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/support/skip.h"

namespace dtrun::cudnn_test {

using namespace dtrun::worker::cuda;

TEST_CASE("cuDNN is found, with its other parts beside it") {
  const Cudnn* there = cudnn();
  if (there == nullptr) return test::skip(why_no_cudnn());
  CHECK(why_no_cudnn().empty());
  std::printf("cuDNN %s at %s\n", there->version.c_str(), there->file.c_str());
  CHECK(there->version.starts_with("9."));
  CHECK(there->get_version() >= 90800);
  CHECK(there->get_cudart_version() / 1000 == 13);
  // This one lies in libcudnn_graph.so.9, which cuDNN loads at the first call.
  cudnnBackendDescriptor_t tensor = nullptr;
  REQUIRE(there->create_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor) == CUDNN_STATUS_SUCCESS);
  CHECK(there->finalize(tensor) != CUDNN_STATUS_SUCCESS);  // it has no shape yet
  CHECK(there->destroy_descriptor(tensor) == CUDNN_STATUS_SUCCESS);
}

}  // namespace dtrun::cudnn_test
