// How all ranks stop after the same step although each is told at another moment: with every step each rank
// says whether it was told to stop, and all act on the same answers. The messages travel while the step
// computes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker/base/pulse.h"
#include "worker/collective/collective.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

class StopVote {
 public:
  explicit StopVote(Collective& collective) : collective_(collective), votes_(collective.size()) {}

  // Once per step on every rank; then result() once.
  void cast(bool stop) {
    votes_[collective_.rank()] = std::byte{stop};
    pending_ = collective_.start_gather(kTagStopVote,
                                        [this](int rank) { return std::span(votes_).subspan(rank, 1); });
  }

  // True if any rank wants to stop: the same on all.
  bool result() {
    const Pulse::WaitsForPeers alive;
    pending_->wait();
    for (const std::byte vote : votes_) {
      if (vote != std::byte{0}) return true;
    }
    return false;
  }

 private:
  Collective& collective_;
  std::vector<std::byte> votes_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace dtrun::worker
