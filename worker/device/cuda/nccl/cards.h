// What ranks tell each other before there are links between their GPUs. Needs no NCCL.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "worker/device/cuda/use.h"
#include "worker/vector/device_links.h"

namespace dtrun::worker::cuda {

struct LinkCard {
  std::array<char, 128> id{};  // an ncclUniqueId, of ranks that make one
  std::array<char, 256> host{};
  std::array<char, 256> why_not{};  // "": it has NCCL

  void set_host(const std::string& text);
  void set_why_not(const std::string& text);
};

// Those of all ranks; nothing where one has no NCCL: `use` is told why.
std::optional<std::vector<LinkCard>> show_cards(const LinkPeers& peers, const LinkCard& own, UseRecord& use);

}  // namespace dtrun::worker::cuda
