// One layer of a network as oneDNN calls: built once for fixed rows, formats chosen by oneDNN.
#pragma once

#include <memory>
#include <vector>

#include "worker/device/cpu/lowering.h"
#include "worker/device/cpu/onednn/call.h"
#include "worker/model/program.h"

namespace dtrun::worker::onednn {

// A parameter in PyTorch's layout, on the flat vectors of weights (the caller's) and gradients (the graph's).
struct ParameterMemory {
  dnnl::memory value, gradient;
};

// An operation. Operations are built forward (first to last), then backward (last to first), because each
// needs its neighbour's memory.
class OnednnOp {
 public:
  OnednnOp(const dnnl::engine& engine, const Operation& operation) : engine_(engine), operation_(operation) {}
  virtual ~OnednnOp() = default;

  // Builds load and forward from the memory of the input; returns that of the output.
  virtual dnnl::memory build_forward(const dnnl::memory& in) = 0;
  // Builds backward from the gradient of the output; returns that of the input (empty if no operation needs
  // it).
  virtual dnnl::memory build_backward(const dnnl::memory& out_gradient) = 0;
  virtual const Parameter* first_parameter() const { return nullptr; }

  std::vector<PrimitiveCall> load;  // after new parameter values
  std::vector<PrimitiveCall> forward;
  std::vector<PrimitiveCall> backward;  // writes the parameters' gradients into the flat gradient

 protected:
  // Appends to `backward` the mask of the ReLU that was folded into this operation; returns the masked
  // out_gradient.
  dnnl::memory through_relu(const dnnl::memory& out_gradient);

  const dnnl::engine& engine_;
  const Operation operation_;
  dnnl::memory out_;
};

std::unique_ptr<OnednnOp> make_conv(const dnnl::engine&, const Operation&, int rows, const Parameter& weight,
                                    const ParameterMemory& weight_memory, const ParameterMemory& bias_memory);
std::unique_ptr<OnednnOp> make_linear(const dnnl::engine&, const Operation&, int rows,
                                      const Parameter& weight, const ParameterMemory& weight_memory,
                                      const ParameterMemory& bias_memory);
std::unique_ptr<OnednnOp> make_pool(const dnnl::engine&, const Operation&, int rows, const MaxPool2d&);

}  // namespace dtrun::worker::onednn
