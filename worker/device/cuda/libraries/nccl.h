// NCCL's functions as this program uses them: bytes between GPUs, and communicators that can be given up.
#pragma once

#include <nccl.h>

#include <string>

namespace dtrun::worker::cuda {

struct Nccl {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommInitRankScalable) comm_init_rank_scalable = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;

  std::string version;  // "2.28.9"
  std::string file;     // where it was found
};

// Opened by the first call; later ones give the same. Null where there is no NCCL from 2.27 on: one worker
// alone needs none, so whoever does need it says why_no_nccl(). Any thread. A program may link other
// definitions than nccl_loaded.cc's.
const Nccl* nccl();

// One line that names every place looked in; "" where there is NCCL.
const std::string& why_no_nccl();

}  // namespace dtrun::worker::cuda
