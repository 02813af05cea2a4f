// The records that ranks exchange before there are links between their GPUs. Needs no NCCL.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "worker/device/cuda/use.h"
#include "worker/vector/device_links.h"

namespace dtrun::worker::cuda {

struct LinkCard {
  std::array<char, 128> id{};  // an ncclUniqueId, for ranks that make one
  std::array<char, 256> host{};
  std::array<char, 256> why_not{};  // "": the rank has NCCL

  void set_host(const std::string& text);
  void set_why_not(const std::string& text);
};

// The cards of all ranks; nothing if a rank has no NCCL, whose reason goes to `use`.
std::optional<std::vector<LinkCard>> show_cards(const LinkPeers& peers, const LinkCard& own, UseRecord& use);

}  // namespace dtrun::worker::cuda
