// The operations of a planned lane on values in groups of samples (Plan::group), by the loops of grouped/.
// Operations on each element need none of their own: a padded group is as many more elements.
#pragma once

#include <algorithm>
#include <cstddef>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/planned/lane_memory.h"

namespace dtrun::worker::planned {

class GroupOps {
 public:
  // `at` must outlive this.
  explicit GroupOps(const LaneMemory& at) : at_(at) {}

  // The samples, into the arena.
  void load_samples() const {
    side_by_side(at_.program().sample.shape.size(), at_.microbatch().values, at_.out(0));
  }

  void forward(const Conv2d& l, const Node& node, const Call& call) const {
    each_group(node, [&](std::size_t from, std::size_t to) {
      k_.conv_forward(conv_shape(l, node), at_.in(node.in[0]) + from, at_.weight(l.weight),
                      at_.weight(*l.bias), call.relu, at_.out(node.out) + to);
    });
  }
  void backward(const Conv2d& l, const Node& node, const Call& call) const {
    const grouped::ConvShape shape = conv_shape(l, node);
    k_.conv_backward_weights(shape, groups(), at_.in(node.in[0]), at_.gradient(node.out),
                             at_.weight_gradient(l.weight), at_.weight_gradient(*l.bias));
    if (call.in[0] == Into::kNone) return;
    each_group(node, [&](std::size_t from, std::size_t to) {
      k_.conv_backward_data(shape, at_.gradient(node.out) + to, at_.weight(l.weight),
                            at_.gradient(node.in[0]) + from);
    });
  }

  void forward(const MaxPool2d& l, const Node& node, const Call&) const {
    each_group(node, [&](std::size_t from, std::size_t to) {
      k_.pool_forward(pool_shape(l, node), at_.in(node.in[0]) + from, at_.out(node.out) + to);
    });
  }
  void backward(const MaxPool2d& l, const Node& node, const Call& call) const {
    each_group(node, [&](std::size_t from, std::size_t to) {
      k_.pool_backward(pool_shape(l, node), at_.in(node.in[0]) + from, at_.in(node.out) + to,
                       at_.gradient(node.out) + to, call.relu, at_.gradient(node.in[0]) + from);
    });
  }

  void forward(const Linear& l, const Node& node, const Call& call) const {
    multiply(l, at_.in(node.in[0]), call.relu, at_.out(node.out));
  }
  void backward(const Linear& l, const Node& node, const Call& call) const {
    backward_of(l, at_.in(node.in[0]), at_.gradient(node.out), call.in[0], node.in[0]);
  }

  // The classifier: all logits, in rows.
  void logits(const Linear& l, Value x, float* rows) const {
    multiply(l, at_.in(x), false, at_.logits());
    each_group(0, l.out_features, [&](std::size_t, std::size_t at) {
      k_.group_to_rows(l.out_features, at_.logits() + at, rows + at);
    });
  }
  // Its backward, from the gradient of the logits in rows.
  void backward_of_logits(const Linear& l, Value x, const float* rows, Into into) const {
    side_by_side(l.out_features, rows, at_.logits());
    backward_of(l, at_.in(x), at_.logits(), into, x);
  }

 private:
  int groups() const { return static_cast<int>(at_.samples() / grouped::kGroup); }
  // Calls each(offset of the group in a value of `in_size` a sample, and in one of `out_size`).
  template <typename Each>
  void each_group(std::size_t in_size, std::size_t out_size, const Each& each) const {
    for (std::size_t n = 0; n < at_.samples(); n += grouped::kGroup) each(n * in_size, n * out_size);
  }
  template <typename Each>
  void each_group(const Node& node, const Each& each) const {
    each_group(at_.width(node.in[0]), at_.width(node.out), each);
  }
  // [samples][values] to groups. The padding becomes zeros.
  void side_by_side(std::size_t values, const float* rows, float* to) const {
    const auto real = static_cast<std::size_t>(at_.microbatch().samples);
    for (std::size_t n = 0; n < real; n += grouped::kGroup)
      k_.rows_to_group(static_cast<int>(std::min<std::size_t>(real - n, grouped::kGroup)), values,
                       rows + n * values, to + n * values);
  }

  const SampleShape& shape(Value value) const { return at_.program().values[value].row; }
  grouped::ConvShape conv_shape(const Conv2d& l, const Node& node) const {
    const SampleShape &from = shape(node.in[0]), &to = shape(node.out);
    return {from.channels, from.height, from.width, to.channels, to.height, to.width, l.kernel};
  }
  grouped::PoolShape pool_shape(const MaxPool2d& l, const Node& node) const {
    const SampleShape &from = shape(node.in[0]), &to = shape(node.out);
    return {from.channels, from.height, from.width, to.height, to.width, l.kernel};
  }

  void multiply(const Linear& l, const float* x, bool relu, float* y) const {
    each_group(l.in_features, l.out_features, [&](std::size_t from, std::size_t to) {
      k_.linear_forward({l.in_features, l.out_features}, x + from, at_.weight(l.weight), at_.weight(*l.bias),
                        relu, y + to);
    });
  }
  void backward_of(const Linear& l, const float* x, const float* d, Into into, Value in) const {
    const grouped::LinearShape shape{l.in_features, l.out_features};
    k_.linear_backward_weights(shape, groups(), x, d, at_.columns(), at_.weight_gradient(l.weight),
                               at_.weight_gradient(*l.bias));
    if (into == Into::kNone) return;
    each_group(l.in_features, l.out_features, [&](std::size_t from, std::size_t to) {
      k_.linear_backward_data(shape, d + to, at_.weight(l.weight), at_.gradient(in) + from);
    });
  }

  const LaneMemory& at_;
  const grouped::Kernels& k_ = grouped::kernels();
};

// Whether GroupOps has the operation.
template <typename Op>
concept Grouped = requires(const GroupOps ops, const Op op) {
  ops.forward(op, Node{}, Call{});
};

}  // namespace dtrun::worker::planned
