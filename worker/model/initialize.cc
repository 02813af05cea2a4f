// Initial parameter values. Each parameter has a random stream of its own, so its values depend on the seed
// and its index alone. Functions of the C library that machines may round differently are not used.
#include <cmath>
#include <cstdint>

#include "worker/core/math.h"
#include "worker/core/philox.h"
#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

struct Fill {
  const RandomStream& stream;
  std::span<float> values;

  void operator()(const UniformInit& init) const {
    // 2u - 1 is exact in fp32, so each value is rounded once.
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (2.0f * stream.uniform(i) - 1.0f) * init.bound;
  }
  // Box-Muller. The length has 32 random bits, so that it reaches beyond 6 deviations.
  void operator()(const NormalInit& init) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double u = (static_cast<double>(stream.bits(2 * i)) + 0.5) * 0x1p-32;
      const double length = std::sqrt(-2 * natural_logarithm(u));
      values[i] = static_cast<float>(init.deviation * length * cosine_of_turns(stream.uniform(2 * i + 1)));
    }
  }
  void operator()(const ConstantInit& init) const {
    for (float& value : values) value = init.value;
  }
};

}  // namespace

void initialize_parameters(const Program& program, std::uint64_t seed, std::span<float> flat) {
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    const RandomStream stream(seed, RandomUse::kInit, static_cast<std::uint32_t>(i), 0);
    std::visit(Fill{stream, flat.subspan(parameter.offset, parameter.size)}, parameter.init);
  }
}

}  // namespace dtrun::worker
