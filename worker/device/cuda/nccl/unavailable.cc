// For a build without nccl.h.
#include "worker/device/cuda/nccl/bootstrap.h"
#include "worker/device/cuda/nccl/communicator.h"

namespace dtrun::worker::cuda {

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(int, const CommunicatorBootstrap& peers,
                                                           UseRecord& use) {
  BootstrapInfo own;
  own.set_why_not("dtrun was built without it");
  exchange_bootstrap_info(peers, own, use);
  return nullptr;
}

void check_nccl_environment() {}

}  // namespace dtrun::worker::cuda
