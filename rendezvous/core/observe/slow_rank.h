// The slow rank of a window, and why it is slow.
//
// All ranks end a step together, so step times tell nothing. A rank's own time does, that is math, data and
// other without the wait for peers: where one rank needs longer than the others for the same work, the others
// wait. Pure.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/core/observe/window.h"

namespace dtrun::rendezvous {

// The rank that all others wait for; nothing if none stands out.
std::optional<Straggler> judge_ranks(const Window& window);

// Each rank's own time by what is usual for its part of the work, in thousandths: 1400 for one that needs 1.4
// times as long. kUnknownRatio where nothing is usual.
inline constexpr int kUnknownRatio = -1;
std::vector<int> ratios_to_usual(const Window& window);

}  // namespace dtrun::rendezvous
