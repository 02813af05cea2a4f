#include <string>
#include <vector>

#include "worker/model/models.h"

namespace dtrun::worker {

// fc1, fc2, …: linear layers, each but the last followed by the activation and dropout.
Program mlp(const ModelConfig& config, const SampleSpec& sample) {
  std::vector<Layer> layers{{.type = LayerType::kFlatten}};
  int count = 0;
  const auto linear = [&](std::optional<int> size) {
    const std::string name = "fc" + std::to_string(++count);
    layers.push_back({.type = LayerType::kLinear, .name = name, .out_features = size});
  };
  const LayerType activation =
      config.activation == ActivationType::kGelu ? LayerType::kGELU : LayerType::kReLU;
  for (const int size : config.hidden_sizes) {
    linear(size);
    layers.push_back({.type = activation});
    layers.push_back({.type = LayerType::kDropout, .p = config.dropout});
  }
  linear({});
  return named_layers(layers, sample);
}

}  // namespace dtrun::worker
