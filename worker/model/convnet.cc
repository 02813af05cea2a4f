#include <string>
#include <vector>

#include "worker/model/models.h"

namespace dtrun::worker {

// By default the network of the PyTorch MNIST examples.
Program convnet(const ModelConfig& config, const SampleSpec& sample) {
  std::vector<Layer> layers;
  for (const int channels : config.channels) {
    const std::string name = "conv" + std::to_string(layers.size() / 3 + 1);
    layers.push_back({.type = LayerType::kConv2d,
                      .name = name,
                      .out_channels = channels,
                      .kernel_size = config.kernel_size});
    layers.push_back({.type = LayerType::kReLU});
    layers.push_back({.type = LayerType::kMaxPool2d, .name = "max-pool behind " + name, .kernel_size = 2});
  }
  layers.push_back({.type = LayerType::kFlatten});
  layers.push_back({.type = LayerType::kLinear, .name = "fc1", .out_features = 50});
  layers.push_back({.type = LayerType::kReLU});
  layers.push_back({.type = LayerType::kLinear, .name = "fc2"});
  return named_layers(layers, sample);
}

}  // namespace dtrun::worker
