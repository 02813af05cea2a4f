// Moves vectors between GPUs by NCCL. NCCL only moves bytes here: the caller decides the additions and their
// order. On the loss of a peer the communicator is given up as a whole (ncclCommAbort), and the next
// generation makes a new one.
#pragma once

#include <memory>

#include "worker/device/cuda/use.h"
#include "worker/vector/device_communicator.h"

namespace dtrun::worker::cuda {

// Links of this process' GPU number `gpu`. Null on all ranks if one of them has no NCCL, whose reason goes to
// `use`.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(int gpu, const CommunicatorBootstrap& peers,
                                                           UseRecord& use);

// Sets or refuses NCCL's environment variables that recovery depends on. REQUIRES: no links were made yet,
// and no other thread reads the environment. Throws WorkerError(EX_CONFIG).
void check_nccl_environment();

}  // namespace dtrun::worker::cuda
