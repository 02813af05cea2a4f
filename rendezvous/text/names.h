// Names for programs of what a status has as numbers.
#pragma once

namespace dtrun::rendezvous {

inline constexpr const char* kPhaseNames[] = {"gathering", "running", "stopping", "over"};
inline constexpr const char* kStateNames[] = {"waiting", "running", "finished", "stopped", "away", "lost"};

}  // namespace dtrun::rendezvous
