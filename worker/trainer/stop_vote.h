// How all ranks stop after the same step although each is told at another moment: with every step each rank
// says whether it was told to stop, and all act on the same answers. The messages travel while the step
// computes.
#pragma once

#include <memory>
#include <vector>

#include "worker/base/pulse.h"
#include "worker/collective/collective.h"

namespace dtrun::worker {

class StopVote {
 public:
  explicit StopVote(Collective& collective) : collective_(collective), votes_(collective.size()) {}

  // Once per step on every rank; then result() once.
  void cast(bool stop) {
    votes_[collective_.rank()] = std::byte{stop};
    std::vector<OutMessage> sends;
    std::vector<InMessage> receives;
    for (int peer = 0; peer < collective_.size(); ++peer) {
      if (peer == collective_.rank()) continue;
      sends.push_back({peer, kTag, std::span(votes_).subspan(collective_.rank(), 1)});
      receives.push_back({peer, kTag, std::span(votes_).subspan(peer, 1)});
    }
    pending_ = collective_.start(sends, receives);
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
  static constexpr std::uint32_t kTag = 0x7ffffff1;
  Collective& collective_;
  std::vector<std::byte> votes_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace dtrun::worker
