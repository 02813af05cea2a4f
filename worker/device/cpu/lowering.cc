// Shape propagation and ReLU folding over a network's layers.
#include "worker/device/cpu/lowering.h"

#include <string>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

void require(bool ok, const std::string& what) {
  if (!ok) throw WorkerError(kExitSoftware, "this network cannot be run: " + what);
}

class Lowering {
 public:
  explicit Lowering(const Program& program) : program_(program), shape_(program.sample.shape) {}

  LoweredProgram run() {
    Value value = 0;
    for (const Node& node : program_.nodes) {
      require(!ended_, "a layer follows the loss");
      require(node.in == std::array{value, kNoValue}, "it is no chain of layers");
      value = node.out;
      std::visit([&](const auto& op) { add(op); }, node.op);
      ++node_;
    }
    require(ended_, "its last layer is not the loss");
    require(!lowered_.operations.empty(), "it has no layer with parameters");
    return std::move(lowered_);
  }

 private:
  void add(const Conv2d& conv) {
    require(conv.in_channels == shape_.channels, "a convolution expects other channels than it gets");
    require(shape_.height >= conv.kernel && shape_.width >= conv.kernel,
            "a convolution gets too small an image");
    push(conv, {conv.out_channels, shape_.height - conv.kernel + 1, shape_.width - conv.kernel + 1});
    has_parameters_ = true;
  }
  void add(const MaxPool2d& pool) {
    require(shape_.height >= pool.kernel && shape_.width >= pool.kernel,
            "a max-pool gets too small an image");
    push(pool, {shape_.channels, shape_.height / pool.kernel, shape_.width / pool.kernel});
  }
  void add(const Linear& linear) {
    require(static_cast<std::size_t>(linear.in_features) == shape_.size(),
            "a linear layer expects other features than it gets");
    require(linear.bias.has_value(), "a linear layer has no bias");
    push(linear, {linear.out_features, 1, 1});
    has_parameters_ = true;
  }
  void add(const Relu&) {
    if (lowered_.operations.empty())
      lowered_.input_relu = true;
    else
      lowered_.operations.back().relu = true;
  }
  void add(const Flatten&) {
    shape_ = {.channels = static_cast<int>(shape_.size()), .height = 1, .width = 1};
  }
  void add(const LogSoftmaxNll& loss) {
    require(static_cast<std::size_t>(loss.classes) == shape_.size(),
            "its loss expects other classes than it gets");
    lowered_.classes = shape_.size();
    ended_ = true;
  }

  template <typename Other>
  void add(const Other&) {
    require(false, "one of its layers is not for images");
  }

  void push(const Op& op, const SampleShape& out) {
    const bool after_relu = !lowered_.operations.empty() && lowered_.operations.back().relu;
    lowered_.operations.push_back({.op = op,
                                   .in = shape_,
                                   .out = out,
                                   .in_is_relu = after_relu,
                                   .needs_in_gradient = has_parameters_,
                                   .node = node_});
    shape_ = out;
  }

  const Program& program_;
  SampleShape shape_;
  LoweredProgram lowered_;
  bool has_parameters_ = false, ended_ = false;
  int node_ = 0;
};

}  // namespace

LoweredProgram lower(const Program& program) { return Lowering(program).run(); }

}  // namespace dtrun::worker
