// The loops behind loops.h, for the instruction set of the file that includes this: plain ones, which the
// compiler turns into vectors. Calls no inline function with external linkage: a copy of one compiled for
// AVX-512 must not become the program's only copy. The including file defines DTRUN_LOOPS (a namespace) and
// DTRUN_LOOPS_NAME.
#include "worker/vector/loops.h"

namespace dtrun::worker::vector::DTRUN_LOOPS {
namespace {

void add(const float* left, const float* right, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

void scale(const float* values, float factor, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = values[i] * factor;
}

void divide(const float* values, float divisor, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = values[i] / divisor;
}

// Several sums, so that their additions overlap.
void add_squares(const float* values, std::size_t count, double* sums) {
  double own[kSquareSums];
  for (std::size_t k = 0; k < kSquareSums; ++k) own[k] = sums[k];
  const std::size_t whole = count / kSquareSums * kSquareSums;
  for (std::size_t i = 0; i < whole; i += kSquareSums) {
    for (std::size_t k = 0; k < kSquareSums; ++k) {
      const double value = values[i + k];
      own[k] += value * value;
    }
  }
  for (std::size_t i = whole; i < count; ++i) {
    const double value = values[i];
    own[i - whole] += value * value;
  }
  for (std::size_t k = 0; k < kSquareSums; ++k) sums[k] = own[k];
}

void sgd(const SgdRule& rule, const float* __restrict gradient, float* __restrict parameters,
         std::size_t count) {
  const float rate = rule.rate, decay = rule.weight_decay;
  for (std::size_t i = 0; i < count; ++i) parameters[i] -= rate * (gradient[i] + decay * parameters[i]);
}

void sgd_momentum(const SgdRule& rule, const float* __restrict gradient, float* __restrict parameters,
                  float* __restrict buffer, std::size_t count) {
  const float rate = rule.rate, decay = rule.weight_decay, momentum = rule.momentum;
  if (rule.nesterov) {
    for (std::size_t i = 0; i < count; ++i) {
      const float g = gradient[i] + decay * parameters[i];
      buffer[i] = buffer[i] * momentum + g;
      parameters[i] -= rate * (g + momentum * buffer[i]);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    buffer[i] = buffer[i] * momentum + (gradient[i] + decay * parameters[i]);
    parameters[i] -= rate * buffer[i];
  }
}

void adamw(const AdamWRule& rule, float keep, const float* __restrict gradient, float* __restrict parameters,
           float* __restrict mean, float* __restrict mean_square, std::size_t count) {
  const AdamWRule f = rule;
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    mean[i] = mean[i] * f.beta1 + f.rest1 * g;
    mean_square[i] = mean_square[i] * f.beta2 + f.rest2 * g * g;
    const float denominator = __builtin_sqrtf(mean_square[i]) / f.root_correction + f.epsilon;
    parameters[i] = parameters[i] * keep - f.step_size * (mean[i] / denominator);
  }
}

void outer(const OuterRule& rule, float* __restrict mean, float* __restrict parameters,
           float* __restrict buffer, std::size_t count) {
  const float rate = rule.rate, momentum = rule.momentum;
  for (std::size_t i = 0; i < count; ++i) {
    const float g = parameters[i] - mean[i];
    float direction = g;
    if (buffer != nullptr) {
      buffer[i] = buffer[i] * momentum + g;
      direction = g + momentum * buffer[i];
    }
    parameters[i] = mean[i] - (rate * direction - g);
    mean[i] = g;
  }
}

constexpr Loops kLoops{.instruction_set = DTRUN_LOOPS_NAME,
                       .add = add,
                       .scale = scale,
                       .divide = divide,
                       .add_squares = add_squares,
                       .sgd = sgd,
                       .sgd_momentum = sgd_momentum,
                       .adamw = adamw,
                       .outer = outer};

}  // namespace
}  // namespace dtrun::worker::vector::DTRUN_LOOPS

namespace dtrun::worker {

template <>
const vector::Loops Copies<vector::Loops>::DTRUN_LOOPS = vector::DTRUN_LOOPS::kLoops;

}  // namespace dtrun::worker
