// Log-softmax and negative log-likelihood of a microbatch, with its gradient: planned/'s loop over each row.
#pragma once

#include <cstdint>
#include <span>

#include "worker/device/device.h"

namespace dtrun::worker {

// logits: [rows, classes]; labels: those of the first `samples` rows. Sums run in sample order in fp64. If
// logit_gradient is not empty ([rows, classes]), it becomes the gradient of the summed loss: softmax - onehot
// for the real rows, zero for the rest. Throws WorkerError (EX_NOINPUT) for a label that is no class.
// With a smoothing e the loss is (1 - e) * NLL + e * the mean over all classes of -log p, and (1 - e) *
// onehot + e / classes takes onehot's place.
MicrobatchStats log_softmax_nll(std::span<const float> logits, int classes, const std::int32_t* labels,
                                int samples, std::span<float> logit_gradient, float smoothing = 0);

}  // namespace dtrun::worker
