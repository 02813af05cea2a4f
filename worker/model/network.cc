// The model zoo: builds a Network layer by layer while it follows the samples' shape, so that data that does
// not fit is refused here and not inside a kernel. Values are initialize.cc's.
#include "worker/model/network.h"

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

// A bucket this large hides the latency of its exchange; smaller ones would pay it more often.
constexpr std::size_t kBucketBytes = 64 * 1024;

class Builder {
 public:
  Builder(const SampleShape& input, int classes) : shape_(input) {
    network_.input = input;
    network_.classes = classes;
  }

  void conv(const std::string& name, int out_channels, int kernel) {
    require_at_least(name, kernel);
    const std::size_t weight =
        add_parameter(name + ".weight", {out_channels, shape_.channels, kernel, kernel});
    const std::size_t bias = add_parameter(name + ".bias", {out_channels});
    network_.layers.push_back(Conv2d{.in_channels = shape_.channels,
                                     .out_channels = out_channels,
                                     .kernel = kernel,
                                     .weight = weight,
                                     .bias = bias});
    shape_ = {
        .channels = out_channels, .height = shape_.height - kernel + 1, .width = shape_.width - kernel + 1};
  }

  void relu() { network_.layers.push_back(Relu{}); }

  void max_pool(int kernel) {
    require_at_least("max-pool", kernel);
    network_.layers.push_back(MaxPool2d{kernel});
    shape_ = {.channels = shape_.channels, .height = shape_.height / kernel, .width = shape_.width / kernel};
  }

  void flatten() {
    network_.layers.push_back(Flatten{});
    shape_ = {.channels = static_cast<int>(shape_.size()), .height = 1, .width = 1};
  }

  void linear(const std::string& name, int out_features) {
    const int in_features = shape_.channels;
    const std::size_t weight = add_parameter(name + ".weight", {out_features, in_features});
    const std::size_t bias = add_parameter(name + ".bias", {out_features});
    network_.layers.push_back(
        Linear{.in_features = in_features, .out_features = out_features, .weight = weight, .bias = bias});
    shape_.channels = out_features;
  }

  Network finish() {
    network_.layers.push_back(LogSoftmaxNll{network_.classes});
    cut_buckets();
    return std::move(network_);
  }

 private:
  void require_at_least(const std::string& layer, int kernel) const {
    if (shape_.channels >= 1 && shape_.height >= kernel && shape_.width >= kernel) return;
    const SampleShape& in = network_.input;
    throw WorkerError(kExitConfig, "the data does not fit the model: samples of " +
                                       std::to_string(in.channels) + "x" + std::to_string(in.height) + "x" +
                                       std::to_string(in.width) + " are too small for its layer " + layer +
                                       "; choose other data or another model");
  }

  std::size_t add_parameter(std::string name, std::vector<std::int64_t> shape) {
    const auto size = static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    network_.parameters.push_back(
        {.name = std::move(name), .shape = std::move(shape), .offset = network_.size, .size = size});
    network_.size += size;
    return network_.parameters.size() - 1;
  }

  // From the last layer to the first, closed at a layer's weight: a layer's weight and bias become final
  // together.
  void cut_buckets() {
    std::size_t end = network_.size;
    for (auto layer = network_.layers.rbegin(); layer != network_.layers.rend(); ++layer) {
      const auto weight = first_parameter(*layer);
      if (!weight) continue;
      const std::size_t begin = network_.parameters[*weight].offset;
      if ((end - begin) * sizeof(float) < kBucketBytes && begin != 0) continue;
      network_.buckets.push_back({begin, end});
      end = begin;
    }
  }

  static std::optional<std::size_t> first_parameter(const Layer& layer) {
    if (const auto* conv = std::get_if<Conv2d>(&layer)) return conv->weight;
    if (const auto* linear = std::get_if<Linear>(&layer)) return linear->weight;
    return std::nullopt;
  }

  Network network_;
  SampleShape shape_;  // of what the next layer gets
};

// The network of the PyTorch MNIST examples.
Network convnet(const SampleShape& input, int classes) {
  Builder net(input, classes);
  net.conv("conv1", 20, 5);
  net.relu();
  net.max_pool(2);
  net.conv("conv2", 20, 5);
  net.relu();
  net.max_pool(2);
  net.flatten();
  net.linear("fc1", 50);
  net.relu();
  net.linear("fc2", classes);
  return net.finish();
}

}  // namespace

Network make_network(const ModelConfig& config, const SampleShape& input, int classes) {
  if (classes < 2)
    throw WorkerError(kExitConfig,
                      "the data has " + std::to_string(classes) + " class(es); a classifier needs two");
  if (config.type == "convnet") {
    Network network = convnet(input, classes);
    network.model = config.type;
    return network;
  }
  throw WorkerError(kExitConfig, "/model/type: \"" + config.type + "\" is not a model; known: \"convnet\"");
}

}  // namespace dtrun::worker
