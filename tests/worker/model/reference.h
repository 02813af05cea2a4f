// Programs by plain loops in fp64, straight from the definitions: the CPU device is compared with it. Its own
// gradients are checked by central differences (reference_test.cc).
#pragma once

#include <span>
#include <vector>

#include "worker/device/device.h"
#include "worker/model/program.h"

namespace dtrun::worker::reference {

struct Result {
  double loss = 0;  // summed over the targets
  int correct = 0;
  std::vector<double> gradient;  // of the summed loss, flat; sums for running statistics (Program::running)
};

// The nearest bf16, of two equally near ones the even one.
double to_bf16(double value);

// A microbatch of training, with dropout, or one of an evaluation. In a bf16 program the factors are rounded;
// the sums are not.
Result run(const Program& program, std::span<const double> parameters, const Microbatch& microbatch,
           bool training = true);

}  // namespace dtrun::worker::reference
