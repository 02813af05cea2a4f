// A network as data: layers in order, named parameters in one flat vector, and the buckets in which its
// gradient is exchanged. A device turns it into something that runs (worker/device/device.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "worker/config/config.h"
#include "worker/core/vector_range.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

struct Parameter {
  std::string name;                  // "conv1.weight"
  std::vector<std::int64_t> shape;   // as PyTorch stores it: conv [out, in, kh, kw], linear [out, in]
  std::size_t offset = 0, size = 0;  // in the flat vector, in floats
};

// Shapes exclude the batch dimension. weight and bias index Network::parameters.
struct Conv2d {
  int in_channels, out_channels, kernel;
  std::size_t weight, bias;
};  // stride 1, no padding
struct Relu {};
struct MaxPool2d {
  int kernel;
};  // stride = kernel, no padding; a rest is dropped
struct Flatten {};
struct Linear {
  int in_features, out_features;
  std::size_t weight, bias;
};
struct LogSoftmaxNll {
  int classes;
};  // always last: log-softmax and the negative log-likelihood
using Layer = std::variant<Conv2d, Relu, MaxPool2d, Flatten, Linear, LogSoftmaxNll>;

struct Network {
  std::string model;         // its name in the config
  std::string input_values;  // Dataset::values() of the data that it is for; for who reads the saved model
  SampleShape input;
  int classes = 0;
  std::vector<Layer> layers;
  std::vector<Parameter> parameters;  // in flat order
  std::size_t size = 0;               // floats in the flat vector
  // Pieces of the flat gradient, in the order in which backward completes them: bucket 0 is the end of the
  // vector (the last layers). Fixed by the model, never by timing.
  std::vector<VectorRange> buckets;
};

// The network that `config` names, for samples of this shape. Throws WorkerError with EX_CONFIG if the data
// does not fit the model.
Network make_network(const ModelConfig& config, const SampleShape& input, int classes);

// Initial values: PyTorch's defaults for these layers, U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weight and
// bias, from RandomStream(seed, kInit, parameter index). flat: [network.size].
void initialize_parameters(const Network& network, std::uint64_t seed, std::span<float> flat);

// What a saved model says of itself (the metadata of its file; docs/model.md): "format", "model", "layers",
// "input_shape", "input_values". Layers are PyTorch's modules of the same names, with their first arguments.
std::map<std::string, std::string> description(const Network& network);

// sha256 (hex) over all parameters as little-endian fp32, in name order.
std::string parameters_sha256(const Network& network, std::span<const float> flat);

}  // namespace dtrun::worker
