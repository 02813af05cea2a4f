// How all ranks leave a generation after the same step although each is told at another moment: with every
// step each rank says what it was told, and all act on the same answers. The messages travel while the step
// computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

enum class Vote : std::uint8_t {
  kGoOn,
  kPause,  // the generation ends, the workers go on in the next one
  kStop,   // save and end
};

class StopVote {
 public:
  explicit StopVote(Collective& collective) : collective_(collective), votes_(collective.size()) {}

  // Once per step on every rank; then result() once.
  void cast(Vote vote) {
    votes_[collective_.rank()] = vote;
    pending_ = collective_.start_gather(kTagStopVote, [this](int rank) {
      return std::as_writable_bytes(std::span(votes_).subspan(rank, 1));
    });
  }

  // The furthest that any rank asked for: the same on all.
  Vote result() {
    pending_->wait();
    return *std::ranges::max_element(votes_);
  }

 private:
  Collective& collective_;
  std::vector<Vote> votes_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace dtrun::worker
