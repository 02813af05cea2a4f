// Networks and samples for the tests of the devices: the real model, and shapes that fit no vector or tile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/philox.h"
#include "worker/model/network.h"

namespace dtrun::worker {

// A network from its layers; channel counts of the layers must fit. Parameters are added in layer order.
class NetworkBuilder {
 public:
  NetworkBuilder(SampleShape input, int classes) {
    network_.input = input;
    network_.classes = classes;
  }
  NetworkBuilder& conv(int in, int out, int kernel) {
    const std::size_t weight = add({out, in, kernel, kernel});
    network_.layers.push_back(Conv2d{in, out, kernel, weight, add({out})});
    return *this;
  }
  NetworkBuilder& linear(int in, int out) {
    const std::size_t weight = add({out, in});
    network_.layers.push_back(Linear{in, out, weight, add({out})});
    return *this;
  }
  NetworkBuilder& relu() { return push(Relu{}); }
  NetworkBuilder& pool(int kernel) { return push(MaxPool2d{kernel}); }
  NetworkBuilder& flatten() { return push(Flatten{}); }
  Network loss() {
    push(LogSoftmaxNll{network_.classes});
    network_.buckets = {{0, network_.size}};
    return network_;
  }

 private:
  NetworkBuilder& push(const Layer& layer) {
    network_.layers.push_back(layer);
    return *this;
  }
  std::size_t add(std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    const std::size_t index = network_.parameters.size();
    network_.parameters.push_back({"p" + std::to_string(index), std::move(shape), network_.size, size});
    network_.size += size;
    return index;
  }
  Network network_;
};

struct NamedNetwork {
  std::string name;
  Network network;
};

inline std::vector<NamedNetwork> test_networks() {
  return {
      {"convnet", make_network({"convnet"}, {1, 28, 28}, 10)},
      {"odd channels and widths, kernel 3, a rest dropped by the pool", NetworkBuilder({3, 13, 11}, 7)
                                                                            .conv(3, 5, 3)
                                                                            .relu()
                                                                            .pool(2)
                                                                            .conv(5, 7, 2)
                                                                            .relu()
                                                                            .flatten()
                                                                            .linear(7 * 12, 7)
                                                                            .loss()},
      {"pool 3, kernel 7, ReLU after the pool, no ReLU between convolutions", NetworkBuilder({2, 28, 26}, 5)
                                                                                  .conv(2, 3, 7)
                                                                                  .conv(3, 9, 2)
                                                                                  .pool(3)
                                                                                  .relu()
                                                                                  .flatten()
                                                                                  .linear(9 * 7 * 6, 19)
                                                                                  .relu()
                                                                                  .linear(19, 5)
                                                                                  .loss()},
      {"kernel 1 and a convolution that leaves one pixel", NetworkBuilder({4, 6, 6}, 3)
                                                               .conv(4, 6, 1)
                                                               .relu()
                                                               .conv(6, 33, 6)
                                                               .relu()
                                                               .flatten()
                                                               .linear(33, 3)
                                                               .loss()},
      {"a pool and a ReLU before any parameter",
       NetworkBuilder({1, 9, 9}, 4).relu().pool(2).flatten().linear(16, 4).loss()},
      {"a ReLU before the loss", NetworkBuilder({1, 3, 3}, 4).flatten().linear(9, 4).relu().loss()},
  };
}

inline std::vector<float> random_values(std::uint64_t seed, std::size_t count, float scale = 1) {
  const RandomStream stream(seed, RandomUse::kInit, 1000, 0);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = (2 * stream.uniform(i) - 1) * scale;
  return values;
}

// Random samples for a network, and its initial parameters.
struct Problem {
  Problem(const Network& network, int samples, std::uint64_t seed = 5)
      : parameters(network.size), x(random_values(seed, samples * network.input.size())), labels(samples) {
    initialize_parameters(network, seed, parameters);
    for (int n = 0; n < samples; ++n) labels[n] = (n * 7 + 3) % network.classes;
  }
  std::vector<float> parameters, x;
  std::vector<std::int32_t> labels;
};

}  // namespace dtrun::worker
