#include "worker/schedule/step_kind.h"

#include <algorithm>
#include <string>

#include "proto/core/overloaded.h"

namespace dtrun::worker::schedule {
namespace {

// The steps of the layer that makes the logits belong to the loss' node (lowering.cc), but count as the
// layer's.
int node_of(const Program& program, const Step& step) {
  const auto loss = static_cast<int>(program.nodes.size()) - 1;
  if (step.node != loss || std::holds_alternative<CrossEntropy>(step.work)) return step.node;
  const auto made = std::ranges::find(program.nodes, program.nodes[loss].in[0], &Node::out);
  return static_cast<int>(made - program.nodes.begin());
}

std::string with(const std::string& name, Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kBiasRelu:
      return name + " + ReLU";
    case Epilogue::kBiasGelu:
      return name + " + GELU";
    case Epilogue::kGeluGradient:
      return name + " and GELU";
    default:
      return name;
  }
}

OpKind matmul(const Linear& l, const std::string& name, const Matmul& w) {
  if (w.c.space == Space::kGradient) return {name, "weight gradient"};
  // y = x W^T, and x's gradient is y's times W.
  const bool forward = w.shape.b_transposed == !l.in_first;
  return {with(name, w.shape.epilogue), forward ? "forward" : "input gradient"};
}

}  // namespace

OpKind kind_of(const Program& program, const Step& step) {
  const int node = node_of(program, step);
  const std::string name = describe(program, node);
  const Op& op = program.nodes[node].op;
  const char* const forward = step.again ? "forward again" : "forward";
  OpKind kind =
      std::visit(Overloaded{
                     [&](const Matmul& w) { return matmul(std::get<Linear>(op), name, w); },
                     [&](const AddRow&) {
                       return OpKind{name, "bias"};
                     },
                     [&](const SumRows&) {
                       return OpKind{name, std::holds_alternative<Linear>(op) ? "bias gradient" : "backward"};
                     },
                     [&](const Normalize& w) {
                       return OpKind{w.right ? "Add + " + name : name, forward};
                     },
                     [&](const Embed& w) {
                       return OpKind{w.position ? name + " + positions" : name, forward};
                     },
                     [&](const CrossEntropy& w) {
                       return OpKind{name, w.gradient ? "forward, backward" : "forward"};
                     },
                     [&](const Convolve& w) {
                       return OpKind{w.relu ? name + " + ReLU" : name, forward};
                     },
                     [&](const PoolBackward& w) {
                       return OpKind{w.relu ? name + " and ReLU" : name, "backward"};
                     },
                     [&](const ConvolveInGradient&) {
                       return OpKind{name, "input gradient"};
                     },
                     [&](const ConvolveWeightGradient&) {
                       return OpKind{name, "weight gradient"};
                     },
                     [&](const Clear&) {
                       return OpKind{name, "clear"};
                     },
                     [&](const auto&) {
                       return OpKind{name, step.backward ? "backward" : forward};
                     },
                 },
                 step.work);
  if (step.again && kind.part == "forward") kind.part = forward;
  return kind;
}

bool is_work(const Step& step) {
  return !std::holds_alternative<Ready>(step.work) && !std::holds_alternative<Join>(step.work);
}

TimedOp timed_op(const Program& program, const Step& step) {
  return {.kind = kind_of(program, step), .node = step.node, .cost = cost_of(step)};
}

}  // namespace dtrun::worker::schedule
