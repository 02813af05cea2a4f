// NCCL's functions as this program uses them: bytes between GPUs, and communicators that can be given up.
#pragma once

#include <nccl.h>

#include <string>

#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {

#define DTRUN_NCCL(F)                                  \
  F(get_version, ncclGetVersion)                       \
  F(get_error_string, ncclGetErrorString)              \
  F(get_last_error, ncclGetLastError)                  \
  F(get_unique_id, ncclGetUniqueId)                    \
  F(comm_init_rank_config, ncclCommInitRankConfig)     \
  F(comm_init_rank_scalable, ncclCommInitRankScalable) \
  F(comm_get_async_error, ncclCommGetAsyncError)       \
  F(comm_abort, ncclCommAbort)                         \
  F(group_start, ncclGroupStart)                       \
  F(group_end, ncclGroupEnd)                           \
  F(send, ncclSend)                                    \
  F(recv, ncclRecv)

struct Nccl {
  DTRUN_TABLE_OF(DTRUN_NCCL)

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
