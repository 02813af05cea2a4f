// A slow network, seen from the ranks that wait: each knows for whose messages it had nothing else to do. A
// delay on a cable is waited for at both of its ends by turns, as ranks catch up with each other, so both
// directions count. Pure.
#pragma once

#include <optional>

#include "rendezvous/core/observe/window.h"

namespace dtrun::rendezvous {

// The one host whose messages, or those to it, all others wait for; or the one pair of hosts. Nothing if
// neither stands out, as where all wait alike, or there are fewer than three hosts.
std::optional<Straggler> judge_network(const Window& window);

// Every rank waits for the others for much of each step, and none of them for a processor. Its cause is
// kCommunication.
std::optional<Straggler> judge_communication(const Window& window);

}  // namespace dtrun::rendezvous
