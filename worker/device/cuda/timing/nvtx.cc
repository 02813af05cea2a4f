#include "worker/device/cuda/timing/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace dtrun::worker::cuda::nvtx {
namespace {

// Null unless a tool has replaced the library's functions. Never destroyed: threads may outlive main().
nvtxDomainHandle_t domain() {
  static auto* const made = nvtxDomainCreateA("dtrun");
  return made;
}

}  // namespace

bool attached() { return domain() != nullptr; }

void push(const char* name) {
  if (!attached()) return;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &event);
}

void pop() {
  if (attached()) nvtxDomainRangePop(domain());
}

}  // namespace dtrun::worker::cuda::nvtx
