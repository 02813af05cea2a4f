// Networks by plain loops in fp64, straight from the definitions: what the CPU device is compared with. Its
// own gradients are checked by central differences (reference_test.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/network.h"

namespace dtrun::worker::reference {

struct Result {
  double loss = 0;  // summed over the samples
  int correct = 0;
  std::vector<double> gradient;  // of the summed loss, flat
};

// x: [labels.size(), input size]
Result run(const Network& network, std::span<const double> parameters, std::span<const float> x,
           std::span<const std::int32_t> labels);

}  // namespace dtrun::worker::reference
