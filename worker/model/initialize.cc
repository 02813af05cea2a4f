// Initial parameter values. Each parameter has a random stream of its own, so its values depend on the seed
// and its index alone.
#include <cmath>
#include <type_traits>

#include "worker/core/philox.h"
#include "worker/model/network.h"

namespace dtrun::worker {
namespace {

void fill_uniform(std::uint64_t seed, std::size_t parameter, float bound, std::span<float> values) {
  const RandomStream stream(seed, RandomUse::kInit, static_cast<std::uint32_t>(parameter), 0);
  // 2u - 1 is exact in fp32, so each value is rounded once, whatever the compiler contracts.
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (2.0f * stream.uniform(i) - 1.0f) * bound;
}

void initialize_layer(const Network& network, std::uint64_t seed, std::size_t weight, std::size_t bias,
                      std::span<float> flat) {
  const Parameter& w = network.parameters[weight];
  const double fan_in = static_cast<double>(w.size) / static_cast<double>(w.shape[0]);
  const float bound = static_cast<float>(1.0 / std::sqrt(fan_in));
  for (const std::size_t index : {weight, bias}) {
    const Parameter& parameter = network.parameters[index];
    fill_uniform(seed, index, bound, flat.subspan(parameter.offset, parameter.size));
  }
}

}  // namespace

void initialize_parameters(const Network& network, std::uint64_t seed, std::span<float> flat) {
  for (const Layer& layer : network.layers) {
    std::visit(
        [&](const auto& l) {
          using L = std::decay_t<decltype(l)>;
          if constexpr (std::is_same_v<L, Conv2d> || std::is_same_v<L, Linear>)
            initialize_layer(network, seed, l.weight, l.bias, flat);
        },
        layer);
  }
}

}  // namespace dtrun::worker
