#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/libraries/nccl.h"
#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {
namespace {

// NVIDIA offers no older NCCL for CUDA 13, and in older ones ncclCommAbort may never return.
constexpr std::size_t kOldest = 22700;

struct LoadedNccl {
  std::optional<Nccl> table;
  std::string why_not;
};

void fill_nccl(Nccl& table, Symbols& symbols) {
  symbols.get(table.get_version, "ncclGetVersion");
  symbols.get(table.get_error_string, "ncclGetErrorString");
  symbols.get(table.get_last_error, "ncclGetLastError");
  symbols.get(table.get_unique_id, "ncclGetUniqueId");
  symbols.get(table.comm_init_rank_config, "ncclCommInitRankConfig");
  symbols.get(table.comm_init_rank_scalable, "ncclCommInitRankScalable");
  symbols.get(table.comm_get_async_error, "ncclCommGetAsyncError");
  symbols.get(table.comm_abort, "ncclCommAbort");
  symbols.get(table.comm_finalize, "ncclCommFinalize");
  symbols.get(table.comm_destroy, "ncclCommDestroy");
  symbols.get(table.group_start, "ncclGroupStart");
  symbols.get(table.group_end, "ncclGroupEnd");
  symbols.get(table.send, "ncclSend");
  symbols.get(table.recv, "ncclRecv");
  symbols.get(table.all_reduce, "ncclAllReduce");
}

// "", or the reason why the library is not suitable. Sets the version.
std::string objection_to(Nccl& table) {
  int version = 0;
  if (table.get_version(&version) != ncclSuccess) return "does not tell its version";
  const auto number = static_cast<std::size_t>(version);
  table.version = version_text(number);
  return number >= kOldest && number / 10000 == NCCL_MAJOR ? "" : "is version " + table.version;
}

LoadedNccl load_nccl() {
  const Library library{
      .name = "NCCL", .soname = "libnccl.so.2", .versions = "2 (from 2.27 on)", .wheel = "nvidia-nccl-cu13"};
  Nccl table;
  try {
    table.file = open_library(
        library, [&](Symbols& symbols) { fill_nccl(table, symbols); }, [&] { return objection_to(table); });
  } catch (const WorkerError& error) {
    return {.table = {}, .why_not = error.what()};
  }
  return {.table = table, .why_not = ""};
}

const LoadedNccl& loaded_nccl() {
  static const LoadedNccl loaded = load_nccl();
  return loaded;
}

}  // namespace

const Nccl* nccl() { return loaded_nccl().table ? &*loaded_nccl().table : nullptr; }

const std::string& why_no_nccl() { return loaded_nccl().why_not; }

}  // namespace dtrun::worker::cuda
