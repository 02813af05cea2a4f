// A network of images made ready to run on one CPU thread for a fixed number of rows: grouped/ (own loops,
// samples side by side). lane.cc adds the loss, the statistics and the buckets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/device/node_timer.h"
#include "worker/model/program.h"

namespace dtrun::worker {

class CpuGraph {
 public:
  virtual ~CpuGraph() = default;

  // Lane::parameters_changed.
  virtual void parameters_changed(const float* weights) = 0;

  // x: [samples, input size]. Returns the input of the last layer, [capacity, classes]; rows from `samples`
  // on hold the result of a row of zeros. Valid until the next call.
  virtual std::span<const float> forward(const float* x, int samples) = 0;

  // Follows forward(). logit_gradient: [capacity, classes], zero in rows that are not real. Writes the
  // gradient of the parameters, last layer first, and calls final_from(offset) whenever the whole gradient
  // from offset on is final.
  virtual void backward(const float* logit_gradient, float* gradient,
                        const std::function<void(std::size_t offset)>& final_from) = 0;
};

std::unique_ptr<CpuGraph> make_grouped_graph(const Program& program, int capacity, NodeClock clock = {});

}  // namespace dtrun::worker
