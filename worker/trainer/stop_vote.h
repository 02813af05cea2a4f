// Lets all ranks leave a generation after the same step although each gets its order at another moment: with
// every step each rank sends its order, and all act on the same answers. The messages travel while the step
// computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

enum class Vote : std::uint8_t {
  kGoOn,
  kPause,  // the generation ends, the workers go on in the next one
  kStop,   // save and end
};

class StopVote {
 public:
  explicit StopVote(ProcessGroup& group) : group_(group), votes_(group.size()) {}

  // Once per step on every rank; then result() once.
  void cast(Vote vote) {
    votes_[group_.rank()] = vote;
    pending_ = group_.start_gather(kTagStopVote, [this](int rank) {
      return std::as_writable_bytes(std::span(votes_).subspan(rank, 1));
    });
  }

  // The strongest order of any rank, the same on all ranks.
  Vote result() {
    pending_->wait();
    return *std::ranges::max_element(votes_);
  }

 private:
  ProcessGroup& group_;
  std::vector<Vote> votes_;
  std::unique_ptr<Work> pending_;
};

}  // namespace dtrun::worker
