// Convolution by oneDNN.
#include "worker/device/cpu/onednn/weighted.h"

namespace dtrun::worker::onednn {
namespace {

struct ConvTraits {
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;
  static constexpr auto forward = conv_forward;
  static constexpr auto backward_data = conv_backward_data;
  static constexpr auto backward_weights = conv_backward_weights;
};

}  // namespace

std::unique_ptr<OnednnOp> make_conv(const dnnl::engine& engine, const Operation& operation, int rows,
                                    const Parameter& weight, const ParameterMemory& weight_memory,
                                    const ParameterMemory& bias_memory) {
  const SampleShape& out = operation.out;
  return std::make_unique<WeightedOp<ConvTraits>>(
      engine, operation, weight, dnnl::memory::dims{rows, out.channels, out.height, out.width}, weight_memory,
      bias_memory);
}

}  // namespace dtrun::worker::onednn
