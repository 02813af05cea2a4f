#include "worker/device/cpu/loss.h"

#include <algorithm>
#include <vector>

#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/wrong_data.h"

namespace dtrun::worker {

MicrobatchStats log_softmax_nll(std::span<const float> logits, int classes, const std::int32_t* labels,
                                int samples, std::span<float> logit_gradient, float smoothing) {
  const planned::Kernels& kernels = planned::kernels();
  const bool wanted = !logit_gradient.empty();
  std::fill(logit_gradient.begin(), logit_gradient.end(), 0.0f);
  std::vector<float> row(wanted ? 0 : classes);
  double loss = 0;
  int correct = 0;
  for (int n = 0; n < samples; ++n) {
    if (labels[n] < 0 || labels[n] >= classes) throw wrong_target(labels[n], classes);
    const std::size_t first = static_cast<std::size_t>(n) * classes;
    float* const values = wanted ? logit_gradient.data() + first : row.data();
    std::copy_n(logits.data() + first, classes, values);
    std::int32_t largest = 0;
    loss += kernels.classify(classes, labels[n], smoothing, wanted, values, &largest);
    correct += largest == labels[n];
  }
  return {.loss = static_cast<float>(loss), .correct = static_cast<float>(correct)};
}

}  // namespace dtrun::worker
