// The loops of a planned lane between its matmuls: rows of floats, next to each other. Compiled once
// per instruction set (kernels_impl.h) and picked when the program starts, like grouped/. No sum's order
// depends on the set, and none asks for fused multiply-add: all sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/base/instruction_sets.h"

namespace dtrun::worker::planned {

// A stream of random numbers: RandomStream::Words (worker/core/philox.h).
struct DropoutStream {
  std::uint32_t key[2];
  std::uint32_t a, b, use;
};

// One sample's images, [channels][height][width], and a square window over them, which goes to
// [rows][columns] places, some of which reach over the edge by up to `padding`.
struct Windows {
  int channels, height, width, size, stride, padding, rows, columns;
};

// Images of several samples, [samples][channels][pixels].
struct Planes {
  std::size_t samples, channels, pixels;
};

// "add": the result is added to the output's old value, else it overwrites.
struct Kernels {
  const char* instruction_set;

  // The nearest bf16, of two equally near ones the even one; NaN stays NaN, and a value too small for a
  // normal number becomes 0: the bits of AVX512_BF16's own conversion.
  void (*to_bf16)(std::size_t count, const float* in, std::uint16_t* out);

  void (*relu)(std::size_t count, const float* in, float* out);
  void (*relu_backward)(std::size_t count, const float* out, const float* out_gradient, bool add,
                        float* in_gradient);
  // The tanh approximation: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  void (*gelu)(std::size_t count, const float* in, float* out);
  void (*gelu_backward)(std::size_t count, const float* in, const float* out_gradient, bool add,
                        float* in_gradient);

  // out[i] = left[i] + right[i]; all three may be the same memory.
  void (*add)(std::size_t count, const float* left, const float* right, float* out);
  // The sum of the rows, in their order.
  void (*sum_rows)(std::size_t rows, std::size_t width, const float* in, bool add, float* sum);

  // sums[r] = the sum of row r.
  void (*sum_each_row)(std::size_t rows, std::size_t width, const float* in, bool add, float* sums);

  // A convolution as a matmul (Caffe's im2col): columns [channels * size * size][positions of the window]
  // have each window's values, and zeros beyond the edge; col2im adds them up where they came from.
  void (*im2col)(const Windows& windows, const float* in, float* columns);
  void (*col2im)(const Windows& windows, const float* columns, float* in_gradient);
  // The largest value of each window, inside the edge; its gradient goes to the first of the largest.
  void (*max_pool)(const Windows& windows, const float* in, float* out);
  void (*max_pool_backward)(const Windows& windows, const float* in, const float* out,
                            const float* out_gradient, bool add, float* in_gradient);

  // moments: [rows][mean, 1 / standard deviation], for backward.
  void (*layer_norm)(std::size_t rows, std::size_t width, float epsilon, const float* in, const float* weight,
                     const float* bias, float* moments, float* out);
  // in_gradient may be null. add_parameters: "add" for the two gradients of the parameters.
  void (*layer_norm_backward)(std::size_t rows, std::size_t width, const float* in, const float* weight,
                              const float* moments, const float* out_gradient, bool add, float* in_gradient,
                              bool add_parameters, float* weight_gradient, float* bias_gradient);

  // moments: [channels][mean, 1 / standard deviation, variance], of each channel over all samples and pixels.
  void (*batch_moments)(const Planes& planes, float epsilon, const float* in, float* moments);
  void (*batch_norm)(const Planes& planes, const float* in, const float* weight, const float* bias,
                     const float* moments, float* out);
  // As layer_norm_backward().
  void (*batch_norm_backward)(const Planes& planes, const float* in, const float* weight,
                              const float* moments, const float* out_gradient, bool add, float* in_gradient,
                              bool add_parameters, float* weight_gradient, float* bias_gradient);
  // Parts of these for a batch norm over several microbatches. sums: [2][channels], of (x - centre) and its
  // square; or of the output's gradient d and of d times the normalised input, of which the other one wants
  // the means over all of them.
  void (*batch_sums)(const Planes& planes, const float* in, const float* centre, double* sums);
  void (*batch_gradient_sums)(const Planes& planes, const float* in, const float* moments,
                              const float* out_gradient, double* sums);
  void (*batch_in_gradient)(const Planes& planes, const float* in, const float* weight, const float* moments,
                            const float* out_gradient, const float* means, bool add, float* in_gradient);

  // In place: row r of `rows`, of which the first `first + r + 1` scores count, becomes their softmax; the
  // rest up to `width` becomes 0. Rows lie `stride` apart.
  void (*causal_softmax)(std::size_t rows, std::size_t first, std::size_t width, std::size_t stride,
                         float* scores);
  // In place: the gradient of the softmax' output becomes that of its input, times `scale`.
  void (*softmax_backward)(std::size_t rows, std::size_t width, std::size_t stride, const float* softmax,
                           float scale, float* gradient);

  // For one row of logits: -log softmax(logits)[target], with a smoothing e (1 - e) times that plus e times
  // the mean over all classes of -log softmax(logits). *largest becomes the index of the first largest one.
  // With `gradient` the logits become the loss' gradient.
  float (*classify)(std::size_t classes, std::int32_t target, float smoothing, bool gradient, float* logits,
                    std::int32_t* largest);

  // As classify() with `gradient`, of (1 - alpha) times its loss + alpha temperature^2 KL(t || s), with t and
  // s the softmax of teacher / temperature and of logits / temperature. `scratch`: room for 2 * classes.
  float (*distill)(std::size_t classes, std::int32_t target, float smoothing, float temperature, float alpha,
                   const float* teacher, float* scratch, float* logits, std::int32_t* largest);

  // out = in / (1 - probability) where the element is kept (worker/core/dropout.h), else 0. Element i of the
  // microbatch uses the stream's number i. in and out may be the same memory.
  void (*dropout)(std::size_t count, const DropoutStream& stream, float probability, const float* in,
                  bool add, float* out);
};

// The fastest set that this processor runs.
const Kernels& kernels();

// All sets that this processor runs, the fastest first; so that tests can compare them.
InstructionSets<Kernels> available_kernels();

}  // namespace dtrun::worker::planned

namespace dtrun::worker {

template <>
const planned::Kernels Copies<planned::Kernels>::baseline;
template <>
const planned::Kernels Copies<planned::Kernels>::avx2;
template <>
const planned::Kernels Copies<planned::Kernels>::avx512;

}  // namespace dtrun::worker
