// NCCL as it is installed here. It loads and tells its version without a GPU.
#include "worker/device/cuda/libraries/nccl.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/support/skip.h"

namespace dtrun::nccl_test {

using namespace dtrun::worker::cuda;

TEST_CASE("NCCL is found, and looked for once") {
  const Nccl* there = nccl();
  if (there == nullptr) return test::skip(why_no_nccl());
  CHECK(nccl() == there);
  CHECK(why_no_nccl().empty());
  std::printf("NCCL %s at %s\n", there->version.c_str(), there->file.c_str());
  CHECK(there->version.starts_with("2."));
  CHECK(there->file.find('/') == 0);
  int version = 0;
  REQUIRE(there->get_version(&version) == ncclSuccess);
  CHECK(version >= 22700);
  CHECK(std::string(there->get_error_string(ncclInProgress)) == "NCCL operation in progress");
  // These need neither a GPU nor a communicator.
  CHECK(there->comm_abort(nullptr) == ncclSuccess);
  CHECK(there->group_end() == ncclInvalidUsage);
  ncclResult_t state = ncclSuccess;
  CHECK(there->comm_get_async_error(nullptr, &state) == ncclInvalidArgument);
}

}  // namespace dtrun::nccl_test
