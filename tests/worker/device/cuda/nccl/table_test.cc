// NCCL by its table, as the worker calls it: one rank alone, which needs no other process. tests/cuda_on_cpu
// tests several ranks, with the stand-in itself.
#include <cuda_on_cpu.h>
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/device_test.h"
#include "worker/device/cuda/libraries/nccl.h"

using namespace dtrun::worker::cuda;

namespace {

ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (nccl()->comm_get_async_error(comm, &state) != ncclSuccess) return ncclNumResults;
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

}  // namespace

TEST_CASE("a communicator is made, moves bytes, adds, and ends, all by the table") {
  const cuda_on_cpu::Restored restored;
  REQUIRE(nccl() != nullptr);
  int version = 0;
  CHECK(nccl()->get_version(&version) == ncclSuccess);
  CHECK(nccl()->version == std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                               std::to_string(version % 100));
  const cuda_on_cpu::TestStream stream;
  const cuda_on_cpu::OnDevice<float> from(std::vector<float>{1, 2, 3}), to(3), sum(3);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (const bool scalable : {false, true}) {
    ncclUniqueId id;
    REQUIRE(nccl()->get_unique_id(&id) == ncclSuccess);
    ncclComm_t comm = nullptr;
    CHECK((scalable ? nccl()->comm_init_rank_scalable(&comm, 1, 0, 1, &id, &config)
                    : nccl()->comm_init_rank_config(&comm, 1, id, 0, &config)) == ncclInProgress);
    REQUIRE(settled(comm) == ncclSuccess);
    CHECK(nccl()->group_start() == ncclSuccess);
    CHECK(nccl()->send(from.data(), 3, ncclFloat, 0, comm, stream) == ncclSuccess);
    CHECK(nccl()->recv(to.data(), 3, ncclFloat, 0, comm, stream) == ncclSuccess);
    CHECK(nccl()->group_end() == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(nccl()->all_reduce(to.data(), sum.data(), 3, ncclFloat, ncclSum, comm, stream) == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(sum.get() == std::vector<float>{1, 2, 3});
    CHECK(nccl()->send(from.data(), 3, ncclFloat, 1, comm, stream) == ncclInvalidArgument);
    CHECK(std::string(nccl()->get_last_error(comm)).find("invalid root 1") != std::string::npos);
    CHECK(std::string(nccl()->get_error_string(ncclRemoteError)).find("remote process") == 0);
    CHECK(nccl()->comm_destroy(comm) == ncclInvalidArgument);  // that send has lost it
    CHECK(nccl()->comm_abort(comm) == ncclSuccess);
  }
}

TEST_CASE("a communicator ends without an abort") {
  const cuda_on_cpu::Restored restored;
  ncclUniqueId id;
  REQUIRE(nccl()->get_unique_id(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  REQUIRE(nccl()->comm_init_rank_config(&comm, 1, id, 0, &config) == ncclSuccess);
  CHECK(nccl()->comm_finalize(comm) == ncclSuccess);
  CHECK(nccl()->comm_destroy(comm) == ncclSuccess);
}
