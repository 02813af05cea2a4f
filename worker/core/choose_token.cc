#include "worker/core/choose_token.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "worker/core/math.h"

namespace dtrun::worker {

int choose_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return logits[a] > logits[b]; });
  if (sampling.temperature <= 0) return order[0];
  if (sampling.top_k > 0) order.resize(std::min<std::size_t>(order.size(), sampling.top_k));

  std::vector<double> weights;
  double all = 0;
  for (const int token : order) {
    weights.push_back(
        exponential((static_cast<double>(logits[token]) - logits[order[0]]) / sampling.temperature));
    all += weights.back();
  }
  std::size_t kept = 0;
  double sum = 0;
  while (kept < weights.size() && (kept == 0 || sum < sampling.top_p * all)) sum += weights[kept++];

  double rest = uniform * sum;
  for (std::size_t i = 0; i < kept; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace dtrun::worker
