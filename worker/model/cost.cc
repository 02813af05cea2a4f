#include "worker/model/cost.h"

#include <algorithm>

#include "proto/core/overloaded.h"

namespace dtrun::worker {
namespace {

// Whether anything before the value has parameters, so that its gradient is wanted.
bool needs_gradient(const Program& program, Value value) {
  const auto maker = std::ranges::find_if(program.nodes, [&](const Node& node) { return node.out == value; });
  if (maker == program.nodes.end()) return false;
  return !parameters_of(maker->op).empty() || std::ranges::any_of(maker->in, [&](Value in) {
    return in != kNoValue && needs_gradient(program, in);
  });
}

// Multiplications in forward for one sample.
double products_of(const Program& program, const Node& node) {
  const ValueShape& out = program.values[node.out];
  const auto rows = static_cast<double>(out.rows);
  return std::visit(Overloaded{
                        [&](const Linear& l) { return rows * l.in_features * l.out_features; },
                        [&](const Conv2d& l) {
                          return static_cast<double>(out.row.size()) * l.in_channels * l.kernel * l.kernel;
                        },
                        // Scores, and sums of values: width multiplications for each pair of tokens.
                        [&](const Attention& l) { return rows * (rows + 1) / 2 * l.width * 2; },
                        [](const auto&) { return 0.0; },
                    },
                    node.op);
}

}  // namespace

NodeCost cost_of(const Program& program, int index, double samples) {
  const Node& node = program.nodes[index];
  if (std::holds_alternative<Flatten>(node.op)) return {};
  const bool tokens_in = std::holds_alternative<Embedding>(node.op);
  double in = 0, parameters = 0;
  for (const Value value : node.in)
    if (value != kNoValue) in += samples * static_cast<double>(program.values[value].size());
  for (const std::size_t parameter : parameters_of(node.op))
    parameters += static_cast<double>(program.parameters[parameter].size);
  const double out = samples * static_cast<double>(program.values[node.out].size());
  // An embedding reads only the rows of the tokens.
  if (tokens_in) parameters = std::min(parameters, out);
  const bool in_gradient = std::ranges::any_of(
      node.in, [&](Value value) { return value != kNoValue && needs_gradient(program, value); });
  const double flops = 2 * samples * products_of(program, node);
  const bool has_weights = flops > 0 && !std::holds_alternative<Attention>(node.op);

  NodeCost cost;
  cost.forward = {.flops = flops, .read = sizeof(float) * (in + parameters), .written = sizeof(float) * out};
  // Each factor's gradient takes as many multiplications as the product.
  cost.backward = {.flops = has_weights && !in_gradient ? flops : 2 * flops,
                   .read = sizeof(float) * (out + in + parameters),
                   .written = sizeof(float) * (parameters + (in_gradient ? in : 0))};
  return cost;
}

}  // namespace dtrun::worker
