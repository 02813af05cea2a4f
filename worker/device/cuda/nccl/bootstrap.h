// The records that ranks exchange before there are links between their GPUs. Needs no NCCL.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "worker/device/cuda/use.h"
#include "worker/vector/device_communicator.h"

namespace dtrun::worker::cuda {

struct BootstrapInfo {
  std::array<char, 128> id{};  // an ncclUniqueId, for ranks that make one
  std::array<char, 256> host{};
  std::array<char, 256> why_not{};  // "": the rank has NCCL

  void set_host(const std::string& text);
  void set_why_not(const std::string& text);
};

// The cards of all ranks; nothing if a rank has no NCCL, whose reason goes to `use`.
std::optional<std::vector<BootstrapInfo>> exchange_bootstrap_info(const CommunicatorBootstrap& peers,
                                                                  const BootstrapInfo& own, UseRecord& use);

}  // namespace dtrun::worker::cuda
