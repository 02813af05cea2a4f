// All that the model's plans and descriptions know of each operation.
#include <optional>
#include <string>
#include <vector>

#include "proto/core/overloaded.h"
#include "proto/json/json.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

std::string text(int number) { return std::to_string(number); }

std::string call(const char* name, const std::vector<int>& arguments, bool bias = true) {
  std::string text = std::string(name) + "(";
  for (int argument : arguments) text += (text.back() == '(' ? "" : ", ") + std::to_string(argument);
  return text + (bias ? ")" : ", False)");
}

std::vector<std::size_t> indices(std::size_t weight, std::optional<std::size_t> bias) {
  return bias ? std::vector{weight, *bias} : std::vector{weight};
}

// Behind the kernel, where they are not what was chosen by leaving them out.
std::string moves(int stride, int usual, int padding) {
  return (stride == usual ? "" : ", stride " + text(stride)) +
         (padding == 0 ? "" : ", padding " + text(padding));
}

// "conv1=" of "conv1.weight".
std::string named(const Program& program, std::size_t weight, const std::string& layer) {
  const std::string& name = program.parameters[weight].name;
  return name.substr(0, name.rfind('.')) + "=" + layer;
}

std::string batch_norm_name(const BatchNorm& norm) { return norm.images ? "BatchNorm2d" : "BatchNorm1d"; }

struct TorchModule {
  const Program& program;

  std::string operator()(const Conv2d& conv) const {
    std::vector<int> arguments{conv.in_channels, conv.out_channels, conv.kernel};
    if (conv.stride != 1 || conv.padding != 0 || !conv.bias)
      arguments.insert(arguments.end(), {conv.stride, conv.padding});
    if (!conv.bias) arguments.insert(arguments.end(), {1, 1});  // dilation and groups, in front of the bias
    return named(program, conv.weight, call("Conv2d", arguments, conv.bias.has_value()));
  }
  std::string operator()(const Relu&) const { return call("ReLU", {}); }
  std::string operator()(const MaxPool2d& pool) const {
    std::vector<int> arguments{pool.kernel};
    if (pool.stride != pool.kernel || pool.padding != 0)
      arguments.insert(arguments.end(), {pool.stride, pool.padding});
    return call("MaxPool2d", arguments);
  }
  std::string operator()(const GlobalAveragePool&) const { return call("AdaptiveAvgPool2d", {1}); }
  std::string operator()(const Flatten&) const { return call("Flatten", {}); }
  std::string operator()(const Linear& linear) const {
    return named(program, linear.weight,
                 call("Linear", {linear.in_features, linear.out_features}, linear.bias.has_value()));
  }
  std::string operator()(const Gelu&) const { return "GELU('tanh')"; }
  std::string operator()(const LayerNorm& norm) const {
    return named(program, norm.weight, call("LayerNorm", {norm.width}));
  }
  std::string operator()(const BatchNorm& norm) const {
    std::string arguments = text(norm.channels);
    if (norm.epsilon != 1e-5 || norm.momentum != 0.1)
      arguments += ", " + json_text(norm.epsilon) + ", " + json_text(norm.momentum);
    return named(program, norm.weight, batch_norm_name(norm) + "(" + arguments + ")");
  }
  std::string operator()(const Dropout& dropout) const {
    return "Dropout(" + json_text(dropout.probability) + ")";
  }
  std::string operator()(const LogSoftmaxNll&) const { return call("LogSoftmax", {1}); }
  std::string operator()(const auto&) const { return ""; }  // no module of torch.nn with one input
};

}  // namespace

std::vector<std::size_t> parameters_of(const Op& op) {
  using Indices = std::vector<std::size_t>;
  return std::visit(Overloaded{
                        [](const Conv2d& conv) { return indices(conv.weight, conv.bias); },
                        [](const Linear& linear) { return indices(linear.weight, linear.bias); },
                        [](const LayerNorm& norm) {
                          return Indices{norm.weight, norm.bias};
                        },
                        [](const BatchNorm& norm) {
                          return Indices{norm.weight, norm.bias};
                        },
                        [](const Embedding& embedding) { return Indices{embedding.weight}; },
                        [](const AddPositions& positions) { return Indices{positions.weight}; },
                        [](const auto&) { return Indices{}; },
                    },
                    op);
}

BackwardReads backward_reads(const Op& op, const PlanFor& device) {
  return std::visit(
      Overloaded{
          [](const Conv2d&) { return BackwardReads{.in = true}; },
          [](const Relu&) { return BackwardReads{.out = true}; },
          [](const Gelu&) { return BackwardReads{.in = true}; },
          [](const MaxPool2d&) { return BackwardReads{.in = true, .out = true}; },
          [](const GlobalAveragePool&) { return BackwardReads{}; },
          [](const Flatten&) { return BackwardReads{}; },
          [](const Linear&) { return BackwardReads{.in = true}; },
          [](const LayerNorm&) { return BackwardReads{.in = true}; },
          [](const BatchNorm&) { return BackwardReads{.in = true}; },
          [](const Embedding&) { return BackwardReads{.in = true}; },
          [](const AddPositions&) { return BackwardReads{}; },
          [&](const Attention&) { return BackwardReads{.in = true, .out = device.attention_keeps_sums}; },
          [](const Dropout&) { return BackwardReads{}; },
          [](const Add&) { return BackwardReads{}; },
          [](const LogSoftmaxNll&) { return BackwardReads{.in = true}; },
      },
      op);
}

std::size_t aux_of(const Op& op, std::size_t rows, const PlanFor& device) {
  if (std::holds_alternative<LayerNorm>(op)) return 2 * rows;
  if (const auto* const norm = std::get_if<BatchNorm>(&op)) return std::size_t{3} * norm->channels;
  const auto* const attention = std::get_if<Attention>(&op);
  return attention != nullptr && device.attention_keeps_sums ? attention->heads * rows : 0;
}

bool is_elementwise(const Op& op) {
  return std::visit(Overloaded{
                        [](const Relu&) { return true; },
                        [](const Gelu&) { return true; },
                        [](const Flatten&) { return true; },
                        [](const AddPositions&) { return true; },
                        [](const Dropout&) { return true; },
                        [](const Add&) { return true; },
                        [](const auto&) { return false; },
                    },
                    op);
}

std::optional<int> forward_in_place(const Op& op) {
  if (std::holds_alternative<Add>(op)) return 1;
  const bool can = std::holds_alternative<Relu>(op) || std::holds_alternative<Flatten>(op) ||
                   std::holds_alternative<AddPositions>(op) || std::holds_alternative<Dropout>(op);
  return can ? std::optional(0) : std::nullopt;
}

std::string describe(const Program& program, int index) {
  const Node& node = program.nodes[index];
  const ValueShape& in = program.values[node.in[0]];
  const std::string width = " " + text(static_cast<int>(in.row.size()));
  return std::visit(
      Overloaded{
          [](const Linear& l) { return "Linear " + text(l.in_features) + " -> " + text(l.out_features); },
          [&](const Conv2d& l) {
            return "Conv2d " + text(l.kernel) + "x" + text(l.kernel) + moves(l.stride, 1, l.padding) + ", " +
                   shape_text(in.row) + " -> " + shape_text(program.values[node.out].row);
          },
          [&](const MaxPool2d& l) {
            return "MaxPool2d " + text(l.kernel) + moves(l.stride, l.kernel, l.padding) + ", " +
                   shape_text(in.row);
          },
          [&](const GlobalAveragePool&) { return "GlobalAveragePool, " + shape_text(in.row); },
          [&](const Attention& l) {
            return "Attention, " + text(l.heads) + " heads of " + text(l.width / l.heads) + ", " +
                   text(in.rows) + " tokens";
          },
          [](const Embedding& l) { return "Embedding " + text(l.classes) + " x " + text(l.width); },
          [](const AddPositions& l) { return "Positions " + text(l.positions) + " x " + text(l.width); },
          [](const LayerNorm& l) { return "LayerNorm " + text(l.width); },
          [&](const BatchNorm& l) { return batch_norm_name(l) + ", " + shape_text(in.row); },
          [&](const Relu&) { return "ReLU" + width; },
          [&](const Gelu&) { return "GELU" + width; },
          [&](const Dropout&) { return "Dropout" + width; },
          [&](const Add&) { return "Add" + width; },
          [](const Flatten&) { return std::string("Flatten"); },
          [](const LogSoftmaxNll& l) { return "Loss of " + text(l.classes) + " classes"; },
      },
      node.op);
}

std::string torch_module(const Program& program, const Op& op) {
  return std::visit(TorchModule{program}, op);
}

}  // namespace dtrun::worker
