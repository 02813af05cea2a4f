// A device's work for one microbatch: every kernel and matmul with its operands, and on a GPU its stream and
// the steps that it waits for. Derived from a program and its plan, without the device, so that tests can
// check it: a lane carries out the steps of its schedule alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <variant>
#include <vector>

#include "worker/core/window.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"
#include "worker/schedule/matmul_shape.h"

namespace dtrun::worker::schedule {

// The memory in which an operand lies. Elements are those of the lane, bf16 or fp32, unless a comment says
// otherwise.
enum class Space : std::uint8_t {
  kNone,
  kArena,       // values, their gradients, and other data for backward
  kSamples,     // the microbatch: values
  kTokens,      // or tokens; int32
  kTargets,     // int32
  kParameters,  // fp32, flat
  kMatrices,    // the parameters in the lane's elements
  kGradient,    // fp32, flat
  kStatistics,  // fp32
};

struct Place {
  Space space = Space::kNone;
  std::size_t offset = 0;  // bytes
  explicit operator bool() const { return space != Space::kNone; }
  bool operator==(const Place&) const = default;
};

// The kinds of steps; the kernels describe the details (kernels/). `add`: the result is added to the old
// value, else it overwrites. Rows are those of a whole microbatch, of which the last may not be real.
struct Matmul {
  MatmulShape shape;
  Place a, b, c, bias, aux;
};
struct AddRow {
  std::size_t rows, width, stride;
  Place row, values;
};  // adds `row` to each row of `values`
struct SumRows {
  std::size_t rows, width, stride;
  Place in, out;
  bool add;
};  // into fp32 sums, such as a bias' gradient
struct Normalize {
  std::size_t rows, width;
  float epsilon;
  // With a `right`, in = left + right is computed first.
  Place left, right, in, weight, bias, moments, out;
};
struct NormalizeBackward {
  std::size_t rows, width;
  Place in, weight, moments, out_gradient, in_gradient;
  bool add;
  Place weight_gradient, bias_gradient;
  bool add_parameters;
};
struct BatchNormalize {
  std::size_t samples, channels, pixels;
  float epsilon;
  Place in, weight, bias, mean, variance, moments, out;  // mean, variance: the running ones
};
struct BatchNormalizeBackward {
  std::size_t samples, channels, pixels;
  Place in, weight, mean, moments, out_gradient, in_gradient;
  bool add;
  Place weight_gradient, bias_gradient;
  bool add_parameters;
  Place sums;  // those for the running mean and variance
};
struct Embed {
  std::size_t rows, width, classes,
      positions;  // after so many rows, those of a sample, `position` begins again
  Place tokens, weight, position, out;
};
struct EmbedBackward {
  std::size_t rows, width, classes;
  Place out_gradient, weight_gradient;
  bool add;
};
struct AttentionForward {
  std::size_t samples, tokens, heads, width;
  Place qkv, out, sums;
};
struct AttentionBackward {
  std::size_t samples, tokens, heads, width;
  Place qkv, out, sums, out_gradient, qkv_gradient;
  bool add;
};
struct CrossEntropy {
  std::size_t rows, classes, stride;  // stride: elements between rows
  Place logits, targets;
  bool gradient;  // the logits become the gradient
};                // also makes the statistics, of these rows and all in front of them
struct Elementwise {
  enum class Kind : std::uint8_t {
    kRelu,
    kReluGradient,  // second: ReLU's output
    kGelu,
    kGeluGradient,  // second: GELU's input
    kAdd,           // of first and second
    kCopy,
    kDropout,  // uses the node's own stream of random numbers
  } kind;
  std::size_t count;
  Place first, second = {}, out;
  bool add = false;
  float probability = 0;
};
struct ImageShape {
  int samples, in_channels, height, width, out_channels, kernel, stride = 1, padding = 0;
  int out_height() const { return window_places(height, kernel, stride, padding); }
  int out_width() const { return window_places(width, kernel, stride, padding); }
  std::size_t in_size() const { return std::size_t(in_channels) * height * width; }  // of a sample
  std::size_t out_size() const { return std::size_t(out_channels) * out_height() * out_width(); }
};  // of a convolution; of a pool the channels are equal
struct Convolve {
  ImageShape shape;
  Place in, weight, bias, out;  // bias: or none, as its gradient
  bool relu;
};
struct ConvolveInGradient {
  ImageShape shape;
  Place weight, out_gradient, in_gradient;
  bool add;
};
struct ConvolveWeightGradient {
  ImageShape shape;
  Place in, out_gradient, weight_gradient, bias_gradient;
  bool add;
};
struct Pool {
  ImageShape shape;
  Place in, out;
};
struct PoolBackward {
  ImageShape shape;
  Place in, out, out_gradient, in_gradient;
  bool add;
  bool relu;  // the backward of a ReLU that makes `in` follows, in place
};
struct Average {
  std::size_t planes, pixels;
  Place in, out;
};  // the mean of each plane of pixels
struct AverageBackward {
  std::size_t planes, pixels;
  Place out_gradient, in_gradient;
  bool add;
};
struct Clear {
  Place out;
  std::size_t bytes;
};
// Notice that all work for these buckets of the gradient is enqueued, and with the last bucket also that for
// the statistics. On a stream for notices only, so that neither matmuls nor the exchange wait for each
// other.
struct Ready {
  int first_bucket, end_bucket;
};
// Waits for the work of all streams in these steps.
struct Join {};

using Work = std::variant<Matmul, AddRow, SumRows, Normalize, NormalizeBackward, BatchNormalize,
                          BatchNormalizeBackward, Embed, EmbedBackward, AttentionForward, AttentionBackward,
                          CrossEntropy, Elementwise, Convolve, ConvolveInGradient, ConvolveWeightGradient,
                          Pool, PoolBackward, Average, AverageBackward, Clear, Ready, Join>;

inline bool is_batch_norm(const Work& work) {
  return std::holds_alternative<BatchNormalize>(work) || std::holds_alternative<BatchNormalizeBackward>(work);
}

// Bytes that a step reads or writes.
struct ByteRange {
  Place place;
  std::size_t bytes = 0;
};

struct Step {
  Work work;
  int node = 0;  // of the program
  bool backward = false;
  bool again = false;  // recomputes in backward a value that forward did not keep
  std::vector<ByteRange> reads, writes;
  int stream = 0;  // 0: the lane's own; the last: that of Ready; others: side streams
  // The steps of other streams that must be done first: their indices in the same list.
  std::vector<int> after;
  bool awaited = false;  // some step is after this one
};

struct Schedule {
  std::vector<Step> forward;   // without the classifier
  std::vector<Step> evaluate;  // the classifier alone
  std::vector<Step> backward;  // the classifier, and all steps behind it; none of a plan that is forward_only
  std::size_t arena = 0;       // bytes

  void each_step(const auto& visit) const {
    for (const auto* const steps : {&forward, &evaluate, &backward})
      for (const Step& step : *steps) visit(step);
  }
};

// What a device and its libraries can do.
struct Abilities {
  bool bf16 = false;  // values are bf16
  // Whether there is an algorithm for the matmul.
  std::function<bool(const MatmulShape&)> multiplies;
  int side_streams = 1;  // for matmuls that no step waits for soon
  // Attention's backward may add to its input's gradient; that of a max-pool may go on through a ReLU.
  bool attention_adds = false, pools_with_relu = false;
};

// A GPU's requirements of a plan. A piece begins at a multiple of 256 bytes.
inline PlanFor plan_for_gpu(bool bf16) {
  const std::size_t elements = bf16 ? 2 : 1;
  return {.float_elements = elements,
          .alignment = 64 * elements,
          .whole_logits = true,
          .attention_keeps_sums = true,
          .joins_calls = true};
}

// A schedule for microbatches of `samples` rows. REQUIRES: `plan` was made for `samples` and plan_for_gpu().
Schedule make_schedule(const Program& program, const Plan& plan, int samples, const Abilities& abilities);

// The matmuls of a schedule, and how often each is in it.
std::map<MatmulShape, int> products_of(const Schedule& schedule);

// Fills in `after` and `awaited`: a step waits for the last step of each other stream that writes memory
// which it reads or writes, or reads memory which it writes, unless its stream has waited already; Join waits
// for all streams.
void order(std::vector<Step>& steps, int streams);

}  // namespace dtrun::worker::schedule
