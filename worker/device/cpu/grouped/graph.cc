// Runs a network with the loops of kernels.h. All buffers are laid out once; running allocates nothing.
#include "worker/device/cpu/graph.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/lowering.h"

namespace dtrun::worker {
namespace {

using grouped::kGroup;

// One activation of all groups and its gradient: [group][value][kGroup].
struct Activation {
  Activation(std::size_t values_per_sample, int groups, bool with_gradient)
      : values(values_per_sample),
        value(values_per_sample * groups * kGroup),
        gradient(with_gradient ? values_per_sample * groups * kGroup : 0) {}
  float* group(int g) const { return value.data() + g * values * kGroup; }
  float* group_gradient(int g) const { return gradient.data() + g * values * kGroup; }

  std::size_t values;  // of one sample
  Buffer value, gradient;
};

// One layer between two activations.
class GroupedOp {
 public:
  GroupedOp(const Operation& operation, const Activation& in, const Activation& out, int groups)
      : operation_(operation), in_(in), out_(out), groups_(groups) {}
  virtual ~GroupedOp() = default;
  virtual void forward(const float* parameters) = 0;
  virtual void backward(const float* parameters, float* gradient) = 0;
  // The first parameter; null without parameters.
  virtual const Parameter* first_parameter() const { return nullptr; }
  int node() const { return operation_.node; }

 protected:
  void mask_in_gradient() const {
    if (operation_.in_is_relu)
      kernels_.mask_by_relu(in_.values * groups_, in_.group(0), in_.group_gradient(0));
  }

  const grouped::Kernels& kernels_ = grouped::kernels();
  const Operation operation_;
  const Activation& in_;
  const Activation& out_;
  const int groups_;
};

class ConvOp : public GroupedOp {
 public:
  ConvOp(const Operation& operation, const Conv2d& conv, const Program& program, const Activation& in,
         const Activation& out, int groups)
      : GroupedOp(operation, in, out, groups),
        shape_{.in_channels = operation.in.channels,
               .in_height = operation.in.height,
               .in_width = operation.in.width,
               .out_channels = operation.out.channels,
               .out_height = operation.out.height,
               .out_width = operation.out.width,
               .kernel = conv.kernel},
        weight_(program.parameters[conv.weight]),
        bias_(program.parameters[conv.bias]) {}

  void forward(const float* parameters) override {
    for (int g = 0; g < groups_; ++g)
      kernels_.conv_forward(shape_, in_.group(g), parameters + weight_.offset, parameters + bias_.offset,
                            operation_.relu, out_.group(g));
  }

  void backward(const float* parameters, float* gradient) override {
    kernels_.conv_backward_weights(shape_, groups_, in_.group(0), out_.group_gradient(0),
                                   gradient + weight_.offset, gradient + bias_.offset);
    if (!operation_.needs_in_gradient) return;
    for (int g = 0; g < groups_; ++g)
      kernels_.conv_backward_data(shape_, out_.group_gradient(g), parameters + weight_.offset,
                                  in_.group_gradient(g));
    mask_in_gradient();
  }

  const Parameter* first_parameter() const override { return &weight_; }

 private:
  const grouped::ConvShape shape_;
  const Parameter &weight_, &bias_;
};

class PoolOp : public GroupedOp {
 public:
  PoolOp(const Operation& operation, const MaxPool2d& pool, const Activation& in, const Activation& out,
         int groups)
      : GroupedOp(operation, in, out, groups),
        shape_{.channels = operation.in.channels,
               .in_height = operation.in.height,
               .in_width = operation.in.width,
               .out_height = operation.out.height,
               .out_width = operation.out.width,
               .kernel = pool.kernel} {}

  void forward(const float*) override {
    for (int g = 0; g < groups_; ++g)
      kernels_.pool_forward(shape_, in_.group(g), operation_.relu, out_.group(g));
  }

  void backward(const float*, float*) override {
    if (!operation_.needs_in_gradient) return;
    for (int g = 0; g < groups_; ++g)
      kernels_.pool_backward(shape_, in_.group(g), out_.group(g), out_.group_gradient(g),
                             operation_.in_is_relu, in_.group_gradient(g));
  }

 private:
  const grouped::PoolShape shape_;
};

class LinearOp : public GroupedOp {
 public:
  LinearOp(const Operation& operation, const Linear& linear, const Program& program, const Activation& in,
           const Activation& out, int groups)
      : GroupedOp(operation, in, out, groups),
        shape_{.in_features = linear.in_features, .out_features = linear.out_features},
        weight_(program.parameters[linear.weight]),
        bias_(program.parameters[*linear.bias]),
        in_rows_(grouped::padded_features(linear.in_features) * groups * kGroup) {}

  void forward(const float* parameters) override {
    for (int g = 0; g < groups_; ++g)
      kernels_.linear_forward(shape_, in_.group(g), parameters + weight_.offset, parameters + bias_.offset,
                              operation_.relu, out_.group(g));
  }

  void backward(const float* parameters, float* gradient) override {
    kernels_.linear_backward_weights(shape_, groups_, in_.group(0), out_.group_gradient(0), in_rows_.data(),
                                     gradient + weight_.offset, gradient + bias_.offset);
    if (!operation_.needs_in_gradient) return;
    for (int g = 0; g < groups_; ++g)
      kernels_.linear_backward_data(shape_, out_.group_gradient(g), parameters + weight_.offset,
                                    in_.group_gradient(g));
    mask_in_gradient();
  }

  const Parameter* first_parameter() const override { return &weight_; }

 private:
  const grouped::LinearShape shape_;
  const Parameter &weight_, &bias_;
  Buffer in_rows_;
};

class GroupedGraph : public CpuGraph {
 public:
  GroupedGraph(const Program& program, int capacity, NodeClock clock)
      : program_(program),
        lowered_(lower(program_)),
        clock_(std::move(clock)),
        groups_((capacity + kGroup - 1) / kGroup),
        logits_(lowered_.classes * groups_ * kGroup) {
    activations_.reserve(lowered_.operations.size() + 1);  // ops keep references
    activations_.emplace_back(program.sample.shape.size(), groups_, false);
    for (const Operation& operation : lowered_.operations) add(operation);
  }

  void parameters_changed(const float* weights) override { weights_ = weights; }

  std::span<const float> forward(const float* x, int samples) override {
    const Activation& input = activations_.front();
    for (int g = 0; g < groups_; ++g) {
      const int rows = std::clamp(samples - g * kGroup, 0, kGroup);
      kernels_.rows_to_group(rows, input.values, x + g * kGroup * input.values, lowered_.input_relu,
                             input.group(g));
    }
    for (const auto& op : ops_) clock_.time(op->node(), false, [&] { op->forward(weights_); });
    const Activation& output = activations_.back();
    for (int g = 0; g < groups_; ++g)
      kernels_.group_to_rows(output.values, output.group(g), logits_.data() + g * kGroup * output.values);
    return {logits_.data(), logits_.size()};
  }

  void backward(const float* logit_gradient, float* gradient,
                const std::function<void(std::size_t offset)>& final_from) override {
    const Activation& output = activations_.back();
    for (int g = 0; g < groups_; ++g)
      kernels_.rows_to_group(kGroup, output.values, logit_gradient + g * kGroup * output.values, false,
                             output.group_gradient(g));
    if (lowered_.operations.back().relu)
      kernels_.mask_by_relu(output.values * groups_, output.group(0), output.group_gradient(0));
    for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
      clock_.time((*op)->node(), true, [&] { (*op)->backward(weights_, gradient); });
      if (const Parameter* first = (*op)->first_parameter()) final_from(first->offset);
    }
  }

 private:
  void add(const Operation& operation) {
    activations_.emplace_back(operation.out.size(), groups_, true);
    const Activation& in = activations_[activations_.size() - 2];
    const Activation& out = activations_.back();
    std::visit(
        [&](const auto& layer) {
          using L = std::decay_t<decltype(layer)>;
          if constexpr (std::is_same_v<L, Conv2d>)
            ops_.push_back(std::make_unique<ConvOp>(operation, layer, program_, in, out, groups_));
          else if constexpr (std::is_same_v<L, Linear>)
            ops_.push_back(std::make_unique<LinearOp>(operation, layer, program_, in, out, groups_));
          else if constexpr (std::is_same_v<L, MaxPool2d>)
            ops_.push_back(std::make_unique<PoolOp>(operation, layer, in, out, groups_));
          else
            throw WorkerError(kExitSoftware, "a lowered network has a layer that is no operation");
        },
        operation.op);
  }

  const Program program_;
  const LoweredProgram lowered_;
  const NodeClock clock_;
  const int groups_;
  const grouped::Kernels& kernels_ = grouped::kernels();
  const float* weights_ = nullptr;       // flat; the caller's
  Buffer logits_;                        // [rows][classes]
  std::vector<Activation> activations_;  // [0]: the input; [i + 1]: the output of operation i
  std::vector<std::unique_ptr<GroupedOp>> ops_;
};

}  // namespace

std::unique_ptr<CpuGraph> make_grouped_graph(const Program& program, int capacity, NodeClock clock) {
  return std::make_unique<GroupedGraph>(program, capacity, std::move(clock));
}

}  // namespace dtrun::worker
