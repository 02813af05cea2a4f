// What a GPU does for one microbatch: every kernel and product with its operands, on which stream, and what
// it waits for. Worked out of a program and its plan once, without a GPU, so that tests can look at it:
// nothing is launched that does not stand here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "worker/device/cuda/matmul_shape.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"

namespace dtrun::worker::cuda {

// The memory in which an operand lies. Elements are those of the lane, bf16 or fp32, unless said.
enum class Space : std::uint8_t {
  kNone,
  kArena,       // values, their gradients, what backward needs besides
  kSamples,     // the microbatch: values
  kTokens,      // or tokens; int32
  kTargets,     // int32
  kParameters,  // fp32, flat
  kMatrices,    // the same in the lane's elements
  kGradient,    // fp32, flat
  kStatistics,  // fp32
};

struct Place {
  Space space = Space::kNone;
  std::size_t offset = 0;  // bytes
  explicit operator bool() const { return space != Space::kNone; }
  bool operator==(const Place&) const = default;
};

// What steps do; the kernels behind them say the details (kernels/). `add`: the result is added to what is
// there, else it overwrites. Rows are those of a whole microbatch, of which the last may not be real.
struct Multiply {
  MatmulShape shape;
  Place a, b, c, bias, aux;
};
struct AddRow {
  std::size_t rows, width, stride;
  Place row, values;
};  // to each row of `values`
struct SumRows {
  std::size_t rows, width, stride;
  Place in, out;
  bool add;
};  // for fp32 sums, as of a bias' gradient
struct Normalize {
  std::size_t rows, width;
  float epsilon;
  // in = left + right first, if there is a `right`.
  Place left, right, in, weight, bias, moments, out;
};
struct NormalizeBackward {
  std::size_t rows, width;
  Place in, weight, moments, out_gradient, in_gradient;
  bool add;
  Place weight_gradient, bias_gradient;
  bool add_parameters;
};
struct Embed {
  std::size_t rows, width, positions;  // positions: of a sample, after which `position` begins again
  Place tokens, weight, position, out;
};
struct EmbedBackward {
  std::size_t rows, width, classes;
  Place out_gradient, weight_gradient;
  bool add;
};
struct Attend {
  std::size_t samples, tokens, heads, width;
  Place qkv, out, sums;
};
struct AttendBackward {
  std::size_t samples, tokens, heads, width;
  Place qkv, out, sums, out_gradient, qkv_gradient;
};
struct Classify {
  std::size_t rows, classes, stride;  // stride: elements between rows
  Place logits;
  bool gradient;  // the logits become it
};                // also writes the statistics
struct Elementwise {
  enum class Kind : std::uint8_t {
    kRelu,
    kReluGradient,  // second: ReLU's output
    kGelu,
    kGeluGradient,  // second: GELU's input
    kAdd,           // of first and second
    kCopy,
    kDropout,  // of the node's own stream of random numbers
  } kind;
  std::size_t count;
  Place first, second = {}, out;
  bool add = false;
  float probability = 0;
};
struct ImageShape {
  int samples, in_channels, height, width, out_channels, kernel;
};  // of a convolution; of a pool the channels are equal
struct Convolve {
  ImageShape shape;
  Place in, weight, bias, out;
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
};
struct Clear {
  Place out;
  std::size_t bytes;
};
// All that makes these buckets of the gradient is enqueued; with the last of them, the statistics too. On a
// stream of its own, which runs nothing else: so neither products nor the exchange wait for each other.
struct Ready {
  int first_bucket, end_bucket;
};
// All that any stream does in these steps is done.
struct Join {};

using Work = std::variant<Multiply, AddRow, SumRows, Normalize, NormalizeBackward, Embed, EmbedBackward,
                          Attend, AttendBackward, Classify, Elementwise, Convolve, ConvolveInGradient,
                          ConvolveWeightGradient, Pool, PoolBackward, Clear, Ready, Join>;

// Bytes that a step reads or writes.
struct Extent {
  Place place;
  std::size_t bytes = 0;
};

struct Step {
  Work work;
  int node = 0;  // of the program
  bool backward = false;
  std::vector<Extent> reads, writes;
  int stream = 0;  // 0: the lane's own; the last: that of Ready; others: side streams
  // The steps of other streams that must be done first: their indices in the same list.
  std::vector<int> after;
  bool awaited = false;  // some step is after this one
};

struct Schedule {
  std::vector<Step> forward;   // but the classifier
  std::vector<Step> evaluate;  // the classifier alone
  std::vector<Step> backward;  // the classifier, and all that follows
  std::size_t arena = 0;       // bytes

  void each_step(const auto& visit) const {
    for (const auto* const steps : {&forward, &evaluate, &backward})
      for (const Step& step : *steps) visit(step);
  }
};

// What the device's libraries can do.
struct Abilities {
  bool bf16 = false;
  // Whether there is an algorithm for the product.
  std::function<bool(const MatmulShape&)> multiplies;
  int side_streams = 1;  // for products that nobody waits for soon
};

// What such a device asks of a plan.
PlanFor plan_for_gpu(bool bf16);

// For microbatches of `samples` rows. `plan` is that for `samples` and plan_for_gpu().
Schedule make_schedule(const Program& program, const Plan& plan, int samples, const Abilities& abilities);

// Fills in `after` and `awaited`: a step waits for the last one of each other stream that writes what it
// reads or writes, or reads what it writes, unless its stream has waited already; Join for all.
void order(std::vector<Step>& steps, int streams);

}  // namespace dtrun::worker::cuda
