#include "worker/device/cuda/nccl/bootstrap.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace dtrun::worker::cuda {
namespace {

void put(std::array<char, 256>& to, const std::string& text) {
  std::copy_n(text.data(), std::min(text.size(), to.size() - 1), to.data());
}

}  // namespace

void BootstrapInfo::set_host(const std::string& text) { put(host, text); }
void BootstrapInfo::set_why_not(const std::string& text) { put(why_not, text); }

std::optional<std::vector<BootstrapInfo>> exchange_bootstrap_info(const CommunicatorBootstrap& peers,
                                                                  const BootstrapInfo& own, UseRecord& use) {
  std::vector<BootstrapInfo> cards(static_cast<std::size_t>(peers.size));
  cards[static_cast<std::size_t>(peers.rank)] = own;
  peers.all_gather(std::as_writable_bytes(std::span(cards)));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::string why(cards[rank].why_not.data());
    if (why.empty()) continue;
    use.set("exchange", "through the hosts' memory");
    use.fall_back("gradients are exchanged through the hosts' memory, since rank " + std::to_string(rank) +
                  " has no NCCL: " + why);
    return std::nullopt;
  }
  return cards;
}

}  // namespace dtrun::worker::cuda
