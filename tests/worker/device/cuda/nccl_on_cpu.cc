// NCCL's table, filled with the stand-in of tests/cuda_on_cpu.
#include "worker/device/cuda/libraries/nccl.h"

namespace dtrun::worker::cuda {

const Nccl* nccl() {
  static const Nccl table{
      .get_version = ncclGetVersion,
      .get_error_string = ncclGetErrorString,
      .get_last_error = ncclGetLastError,
      .get_unique_id = ncclGetUniqueId,
      .comm_init_rank_config = ncclCommInitRankConfig,
      .comm_init_rank_scalable = ncclCommInitRankScalable,
      .comm_get_async_error = ncclCommGetAsyncError,
      .comm_abort = ncclCommAbort,
      .group_start = ncclGroupStart,
      .group_end = ncclGroupEnd,
      .send = ncclSend,
      .recv = ncclRecv,
      .version = "2.28.9",
      .file = "tests/cuda_on_cpu",
  };
  return &table;
}

const std::string& why_no_nccl() {
  static const std::string none;
  return none;
}

}  // namespace dtrun::worker::cuda
