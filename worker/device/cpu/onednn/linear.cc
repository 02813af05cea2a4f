// Fully connected layers by oneDNN.
#include "worker/device/cpu/onednn/weighted.h"

namespace dtrun::worker::onednn {
namespace {

struct LinearTraits {
  using Forward = dnnl::inner_product_forward;
  using BackwardData = dnnl::inner_product_backward_data;
  using BackwardWeights = dnnl::inner_product_backward_weights;
  static constexpr auto forward = linear_forward;
  static constexpr auto backward_data = linear_backward_data;
  static constexpr auto backward_weights = linear_backward_weights;
};

}  // namespace

std::unique_ptr<OnednnOp> make_linear(const dnnl::engine& engine, const Operation& operation, int rows,
                                      const Parameter& weight, const ParameterMemory& weight_memory,
                                      const ParameterMemory& bias_memory) {
  return std::make_unique<WeightedOp<LinearTraits>>(engine, operation, weight,
                                                    dnnl::memory::dims{rows, operation.out.channels},
                                                    weight_memory, bias_memory);
}

}  // namespace dtrun::worker::onednn
