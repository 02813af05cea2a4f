// The gradient's Euclidean norm, for clipping and for the metrics.
#include <array>
#include <cmath>

#include "worker/optim/optimizer.h"

namespace dtrun::worker {

double gradient_norm(std::span<const float> gradient) {
  // Eight partial sums, by index modulo 8: a fixed order that does not wait for each addition to finish.
  constexpr std::size_t kSums = 8;
  std::array<double, kSums> sums{};
  const std::size_t whole = gradient.size() / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double value = gradient[i + k];
      sums[k] += value * value;
    }
  }
  for (std::size_t i = whole; i < gradient.size(); ++i) {
    const double value = gradient[i];
    sums[i - whole] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

}  // namespace dtrun::worker
