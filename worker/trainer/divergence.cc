#include "worker/trainer/divergence.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace dtrun::worker {
namespace {

// The first parameter with a value that is not finite in `values`; empty: none.
std::string not_finite(const Program& program, std::span<const float> values) {
  for (const Parameter& parameter : program.parameters) {
    const auto own = values.subspan(parameter.offset, parameter.size);
    if (!std::ranges::all_of(own, [](float value) { return std::isfinite(value); })) return parameter.name;
  }
  return "";
}

}  // namespace

WorkerError diverged(const Divergence& d) {
  const std::string parameter = not_finite(d.program, d.parameters);
  const std::string gradient = not_finite(d.program, d.gradient);
  std::string text = "training diverged in step " + std::to_string(d.step) + ": the " +
                     (std::isfinite(d.loss) ? "gradient's norm" : "loss") + " is not finite";
  if (!parameter.empty())
    text += "; its parameters were not either, the first " + parameter;
  else if (!gradient.empty())
    text += "; the first gradient that is not finite is that of " + gradient;
  if (d.leaf)
    text += "; it begins in microbatch " + std::to_string(*d.leaf + 1) + " of " + std::to_string(d.leaves);
  return {kExitDataError, text + ". " + kAgainstDivergence};
}

}  // namespace dtrun::worker
