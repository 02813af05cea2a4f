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
  std::string file;     // the library's file
};

// The first call opens the library; later ones return the same table. Null if there is no NCCL from 2.27 on:
// a single worker needs none, so callers that do need it report why_no_nccl(). Any thread. A program may link
// other definitions than those of nccl_loaded.cc.
const Nccl* nccl();

// One line that names every place that was searched; "" if there is NCCL.
const std::string& why_no_nccl();

}  // namespace dtrun::worker::cuda
