// The gradient's exchange where it lies: on the device, beside backward, on a stream of its own.
#pragma once

#include <memory>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/vector/arithmetic.h"
#include "worker/vector/device_links.h"

namespace dtrun::worker {

// `links`: between the ranks of `collective`. `ring`: the links' own sum, other
// bits for each number of ranks; else the tree's. REQUIRES: as make_tree_exchange().
std::unique_ptr<GradientExchange> make_device_exchange(Collective& collective, Arithmetic& arithmetic,
                                                       std::vector<VectorRange> buckets, bool ring,
                                                       std::unique_ptr<DeviceLinks> links);

}  // namespace dtrun::worker
