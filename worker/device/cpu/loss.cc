// Scalar loops in fp32; a microbatch's logits are a few hundred numbers.
#include "worker/device/cpu/loss.h"

#include <algorithm>
#include <cmath>

#include "worker/device/wrong_data.h"

namespace dtrun::worker {
namespace {

void check_label(std::int32_t label, int classes) {
  if (label >= 0 && label < classes) return;
  throw wrong_target(label, classes);
}

// The loss of one sample; `probabilities`, if wanted, become those of the classes.
float sample_loss(const float* logits, int classes, std::int32_t label, float smoothing,
                  float* probabilities) {
  const float largest = *std::max_element(logits, logits + classes);
  float sum = 0;
  for (int c = 0; c < classes; ++c) {
    const float e = std::exp(logits[c] - largest);
    if (probabilities) probabilities[c] = e;
    sum += e;
  }
  if (probabilities) {
    for (int c = 0; c < classes; ++c) probabilities[c] /= sum;
  }
  const float nll = std::log(sum) - (logits[label] - largest);
  if (smoothing == 0) return nll;
  float total = 0;  // over the classes, of their own NLL
  for (int c = 0; c < classes; ++c) total += std::log(sum) - (logits[c] - largest);
  return (1 - smoothing) * nll + smoothing * (total / static_cast<float>(classes));
}

}  // namespace

MicrobatchStats log_softmax_nll(std::span<const float> logits, int classes, const std::int32_t* labels,
                                int samples, std::span<float> logit_gradient, float smoothing) {
  double loss = 0;
  int correct = 0;
  std::fill(logit_gradient.begin(), logit_gradient.end(), 0.0f);
  for (int n = 0; n < samples; ++n) {
    check_label(labels[n], classes);
    const float* row = logits.data() + static_cast<std::size_t>(n) * classes;
    float* gradient =
        logit_gradient.empty() ? nullptr : logit_gradient.data() + static_cast<std::size_t>(n) * classes;
    loss += sample_loss(row, classes, labels[n], smoothing, gradient);
    if (gradient) gradient[labels[n]] -= 1.0f - smoothing;
    for (int c = 0; gradient && smoothing != 0 && c < classes; ++c)
      gradient[c] -= smoothing / static_cast<float>(classes);
    correct += std::max_element(row, row + classes) - row == labels[n];
  }
  return {.loss = static_cast<float>(loss), .correct = static_cast<float>(correct)};
}

}  // namespace dtrun::worker
