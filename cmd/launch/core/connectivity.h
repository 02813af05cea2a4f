// What follows from the connections between the hosts of a launch, as its agents found them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/launch/core/launch.h"

namespace dtrun::cmd {

// The hosts that this one does not reach, in words; empty: it reaches all that can take part.
std::string gaps_text(const LaunchState& state, int index);

// The host with the most gaps to others that are ready; nothing: there are none. The later one of hosts with
// equally many, and never the first host, which is needed.
std::optional<int> most_cut_off(const LaunchState& state);

// The address of the first host that most others reach, since their workers will come to it too.
std::string meeting_address(const LaunchState& state);

// The first host and two that reach it and each other: of three one may be lost. Empty: there are no such
// two.
std::vector<int> hosts_that_may_lead(const LaunchState& state);

}  // namespace dtrun::cmd
