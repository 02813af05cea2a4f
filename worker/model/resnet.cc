#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/models.h"

namespace dtrun::worker {
namespace {

// The layers of torchvision's ResNet, under its names.
class Resnet {
 public:
  explicit Resnet(const ModelConfig& config) : config_(config) {}

  std::vector<Layer> layers() {
    const bool imagenet = config_.stem == StemType::kImagenet;
    int channels = config_.embedding_size;
    imagenet ? conv("conv1", channels, 7, 2, 3) : conv("conv1", channels, 3, 1, 1);
    norm("bn1");
    relu("relu");
    if (imagenet) {
      push({.type = LayerType::kMaxPool2d, .name = "maxpool", .kernel_size = 3});
      layers_.back().stride = 2, layers_.back().padding = 1;
    }
    for (std::size_t stage = 0; stage < config_.depths.size(); ++stage) {
      if (stage > 0) channels *= 2;
      for (int number = 0; number < config_.depths[stage]; ++number)
        block("layer" + std::to_string(stage + 1) + "." + std::to_string(number), channels,
              stage > 0 && number == 0 ? 2 : 1, number == 0 && (stage > 0 || bottleneck()));
    }
    push({.type = LayerType::kAdaptiveAvgPool2d, .name = "avgpool"});
    push({.type = LayerType::kFlatten, .name = "flatten"});
    push({.type = LayerType::kLinear, .name = "fc"});
    return std::move(layers_);
  }

 private:
  bool bottleneck() const { return config_.layer_type == BlockType::kBottleneck; }

  // `downsamples`: it has another size or other channels than what it reads.
  void block(const std::string& name, int channels, int stride, bool downsamples) {
    const std::string before = layers_.back().name;
    const int out = bottleneck() ? 4 * channels : channels;
    if (bottleneck()) {
      conv(name + ".conv1", channels, 1, 1, 0);
      norm(name + ".bn1");
      relu(name + ".relu1");
      conv(name + ".conv2", channels, 3, stride, 1);
      norm(name + ".bn2");
      relu(name + ".relu2");
      conv(name + ".conv3", out, 1, 1, 0);
      norm(name + ".bn3");
    } else {
      conv(name + ".conv1", out, 3, stride, 1);
      norm(name + ".bn1");
      relu(name + ".relu");
      conv(name + ".conv2", out, 3, 1, 1);
      norm(name + ".bn2");
    }
    std::string added = before;
    if (downsamples) {
      added = layers_.back().name;
      conv(name + ".downsample.0", out, 1, stride, 0);
      layers_.back().input = before;
      norm(name + ".downsample.1");
    }
    push({.type = LayerType::kAdd, .name = name + ".sum", .add = added});
    relu(name);
  }
  void conv(const std::string& name, int channels, int kernel, int stride, int padding) {
    push({.type = LayerType::kConv2d, .name = name, .out_channels = channels, .kernel_size = kernel});
    layers_.back().stride = stride, layers_.back().padding = padding, layers_.back().bias = false;
  }
  void norm(const std::string& name) { push({.type = LayerType::kBatchNorm2d, .name = name}); }
  void relu(const std::string& name) { push({.type = LayerType::kReLU, .name = name}); }
  void push(Layer layer) { layers_.push_back(std::move(layer)); }

  const ModelConfig& config_;
  std::vector<Layer> layers_;
};

}  // namespace

// Convolutions begin as torchvision's: normal, with variance 2 / fan_out.
Program resnet(const ModelConfig& config, const SampleSpec& sample) {
  Program program = named_layers(Resnet(config).layers(), sample);
  for (Parameter& parameter : program.parameters)
    if (parameter.shape.size() == 4)
      parameter.init = NormalInit{static_cast<float>(std::sqrt(
          2.0 / static_cast<double>(parameter.shape[0] * parameter.shape[2] * parameter.shape[3])))};
  return program;
}

}  // namespace dtrun::worker
