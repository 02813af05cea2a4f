// The metadata of a saved model, from which its network can be built again.
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

std::string call(const char* name, std::initializer_list<int> arguments) {
  std::string text = std::string(name) + "(";
  for (int argument : arguments) text += (text.back() == '(' ? "" : ", ") + std::to_string(argument);
  return text + ")";
}

// "conv1=" of "conv1.weight".
std::string named(const Program& program, std::size_t weight, const std::string& layer) {
  const std::string& name = program.parameters[weight].name;
  return name.substr(0, name.rfind('.')) + "=" + layer;
}

struct InWords {
  const Program& program;

  std::string operator()(const Conv2d& conv) const {
    return named(program, conv.weight, call("Conv2d", {conv.in_channels, conv.out_channels, conv.kernel}));
  }
  std::string operator()(const Relu&) const { return call("ReLU", {}); }
  std::string operator()(const MaxPool2d& pool) const { return call("MaxPool2d", {pool.kernel}); }
  std::string operator()(const Flatten&) const { return call("Flatten", {}); }
  std::string operator()(const Linear& linear) const {
    return named(program, linear.weight, call("Linear", {linear.in_features, linear.out_features}));
  }
  std::string operator()(const Gelu&) const { return "GELU('tanh')"; }
  std::string operator()(const LayerNorm& norm) const {
    return named(program, norm.weight, call("LayerNorm", {norm.width}));
  }
  std::string operator()(const Dropout& dropout) const {
    return "Dropout(" + nlohmann::json(dropout.probability).dump() + ")";
  }
  std::string operator()(const LogSoftmaxNll&) const { return call("LogSoftmax", {1}); }
  std::string operator()(const auto&) const { return ""; }  // no module of torch.nn with one input
};

// Empty if the program is more than a chain of modules.
std::string layers_of(const Program& program) {
  std::string layers;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    const std::string words = std::visit(InWords{program}, node.op);
    if (words.empty() || node.in[0] != static_cast<Value>(n)) return "";
    layers += (layers.empty() ? "" : " -> ") + words;
  }
  return layers;
}

}  // namespace

std::map<std::string, std::string> description(const Program& program) {
  std::map<std::string, std::string> about{{"format", "pt"},
                                           {"model", program.model},
                                           {"input_shape", shape_text(program.sample.shape)},
                                           {"input_values", program.input_values}};
  if (const std::string layers = layers_of(program); !layers.empty()) about["layers"] = layers;
  if (!program.layers.empty()) about["modules"] = program.layers;
  if (!program.hub_config.empty()) about["config"] = program.hub_config;
  return about;
}

}  // namespace dtrun::worker
