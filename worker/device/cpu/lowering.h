// A network's layers with their shapes, each ReLU folded into the layer before it. Both CPU graphs are built
// from this form.
#pragma once

#include <vector>

#include "worker/model/program.h"

namespace dtrun::worker {

// One operation between two activations.
struct Operation {
  Op op;  // Conv2d, MaxPool2d or Linear
  SampleShape in, out;
  bool relu = false;               // of its output
  bool in_is_relu = false;         // its input is a ReLU's output: the input gradient is zero where that is 0
  bool needs_in_gradient = false;  // some layer before it has parameters
  int node = 0;                    // its first node in the program
};

struct LoweredProgram {
  bool input_relu = false;  // the network begins with a ReLU
  std::vector<Operation> operations;
  std::size_t classes = 0;
};

// Throws WorkerError (EX_SOFTWARE) for a network whose layers do not fit each other.
LoweredProgram lower(const Program& program);

}  // namespace dtrun::worker
