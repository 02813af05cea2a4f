// The gradient's exchange on the device, beside backward, on a stream of its own.
#pragma once

#include <memory>
#include <vector>

#include "worker/collective/gradient_exchange.h"
#include "worker/collective/process_group.h"
#include "worker/vector/arithmetic.h"
#include "worker/vector/device_communicator.h"

namespace dtrun::worker {

// `links`: between the ranks of `collective`. REQUIRES: as make_tree_exchange().
std::unique_ptr<GradientExchange> make_device_exchange(ProcessGroup& group, Arithmetic& arithmetic,
                                                       std::vector<VectorRange> buckets,
                                                       std::unique_ptr<DeviceCommunicator> links);

}  // namespace dtrun::worker
