#include "worker/device/cuda/libraries/nccl.h"

namespace dtrun::worker::cuda {
namespace {

// NVIDIA offers no older NCCL for CUDA 13, and in older ones ncclCommAbort may never return.
constexpr std::size_t kOldest = 22700;

// "", or the reason why the library is not suitable. Sets the version.
std::string objection_to(Nccl& table) {
  int version = 0;
  if (table.get_version(&version) != ncclSuccess) return "does not tell its version";
  const auto number = static_cast<std::size_t>(version);
  table.version = version_text(number);
  return number >= kOldest && number / 10000 == NCCL_MAJOR ? "" : "is version " + table.version;
}

const Loaded<Nccl>& loaded_nccl() {
  static const Loaded<Nccl> loaded = load(
      {.name = "NCCL", .soname = "libnccl.so.2", .versions = "2 (from 2.27 on)", .wheel = "nvidia-nccl-cu13"},
      objection_to);
  return loaded;
}

}  // namespace

const Nccl* nccl() { return loaded_nccl().get(); }

const std::string& why_no_nccl() { return loaded_nccl().why_not; }

}  // namespace dtrun::worker::cuda
