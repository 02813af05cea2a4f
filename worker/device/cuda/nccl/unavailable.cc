// For a build without nccl.h.
#include "worker/device/cuda/nccl/cards.h"
#include "worker/device/cuda/nccl/links.h"

namespace dtrun::worker::cuda {

std::unique_ptr<DeviceLinks> make_nccl_links(int, const LinkPeers& peers, UseRecord& use) {
  LinkCard own;
  own.set_why_not("dtrun was built without it");
  show_cards(peers, own, use);
  return nullptr;
}

void check_nccl_environment() {}

}  // namespace dtrun::worker::cuda
