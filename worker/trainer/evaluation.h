// Loss and accuracy on a whole data set. Ranks and lanes share the microbatches; the leaves' sums are
// gathered and added in the fixed tree, so the result is the same bits for any number of them.
#pragma once

#include <functional>
#include <optional>

#include "worker/collective/process_group.h"
#include "worker/data/dataset.h"
#include "worker/device/lane_team.h"

namespace dtrun::worker {

struct Evaluation {
  double loss = 0;      // mean per target
  double accuracy = 0;  // 0..1
};

// Called by all ranks. `weights`: the parameters, in the lanes' device memory. Nothing if stop() became true
// on any rank before the end. Throws the process group's exceptions.
std::optional<Evaluation> evaluate(const Dataset& data, int micro_batch_size, const float* weights,
                                   ProcessGroup& group, LaneTeam& lanes, const std::function<bool()>& stop);

}  // namespace dtrun::worker
