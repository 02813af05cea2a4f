// The least work of a step of a schedule, with any kernel: the profile shows it beside the step's time, and
// tests compare it with the memory that kernels really read and write.
#pragma once

#include "worker/model/cost.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::schedule {

// Attention is causal: a token has scores with itself and earlier tokens, which backward computes again.
// Embeddings count as if each token came once in the microbatch: the most that is read and written.
OpCost cost_of(const Step& step);

}  // namespace dtrun::worker::schedule
