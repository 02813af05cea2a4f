// Vectors between GPUs by NCCL, which only moves bytes here: what is added, and in which order, is ours. Of
// all that NCCL can do about lost peers this uses the least: a communicator is given up as a whole
// (ncclCommAbort), and the next generation makes a new one.
#pragma once

#include <memory>

#include "worker/device/cuda/use.h"
#include "worker/vector/device_links.h"

namespace dtrun::worker::cuda {

// Of this process' GPU number `gpu`. Null on all ranks where one of them has no NCCL: `use` is told why.
std::unique_ptr<DeviceLinks> make_nccl_links(int gpu, const LinkPeers& peers, UseRecord& use);

// Sets or refuses NCCL's variables on which recovery depends; before the first links, and while no other
// thread reads the environment. Throws WorkerError(EX_CONFIG).
void check_nccl_environment();

}  // namespace dtrun::worker::cuda
