// What a saved model says of itself, so that whoever finds the file can build the network again.
#include <initializer_list>

#include "worker/model/network.h"

namespace dtrun::worker {
namespace {

std::string call(const char* name, std::initializer_list<int> arguments) {
  std::string text = std::string(name) + "(";
  for (int argument : arguments) text += (text.back() == '(' ? "" : ", ") + std::to_string(argument);
  return text + ")";
}

// "conv1=" of "conv1.weight".
std::string named(const Network& network, std::size_t weight, const std::string& layer) {
  const std::string& name = network.parameters[weight].name;
  return name.substr(0, name.rfind('.')) + "=" + layer;
}

struct InWords {
  const Network& network;

  std::string operator()(const Conv2d& conv) const {
    return named(network, conv.weight, call("Conv2d", {conv.in_channels, conv.out_channels, conv.kernel}));
  }
  std::string operator()(const Relu&) const { return call("ReLU", {}); }
  std::string operator()(const MaxPool2d& pool) const { return call("MaxPool2d", {pool.kernel}); }
  std::string operator()(const Flatten&) const { return call("Flatten", {}); }
  std::string operator()(const Linear& linear) const {
    return named(network, linear.weight, call("Linear", {linear.in_features, linear.out_features}));
  }
  std::string operator()(const LogSoftmaxNll&) const { return call("LogSoftmax", {1}); }
};

}  // namespace

std::map<std::string, std::string> description(const Network& network) {
  std::string layers;
  for (const Layer& layer : network.layers)
    layers += (layers.empty() ? "" : " -> ") + std::visit(InWords{network}, layer);
  const SampleShape& in = network.input;
  return {{"format", "pt"},
          {"model", network.model},
          {"layers", layers},
          {"input_shape",
           std::to_string(in.channels) + "x" + std::to_string(in.height) + "x" + std::to_string(in.width)},
          {"input_values", network.input_values}};
}

}  // namespace dtrun::worker
