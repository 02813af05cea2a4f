// Each operation rounds as in worker/vector/loops_impl.h: this file must be compiled without contraction.
#include <cmath>
#include <vector>

#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/vector.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 256;
using Float4 = Pack<float, 4>;

// The thread's first element.
template <int kCount>
__device__ std::size_t place() {
  return (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    add_right_kernel(std::size_t count, float* left, const float* right) {
  wait_for_previous();
  const std::size_t at = place<kCount>();
  if (at >= count) return;
  Pack<float, kCount> x = load<kCount>(left + at, count - at);
  const Pack<float, kCount> y = load<kCount>(right + at, count - at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) x.v[e] = x.v[e] + y.v[e];
  store(left + at, x, count - at);
}

// The tree's additions for a stack: after input j is pushed, the topmost two sums become one merges[j] times.
struct StackProgram {
  int inputs = 0;
  const float* input[kTreeInputs];
  std::uint8_t merges[kTreeInputs] = {};
};

// The topmost sum is stack[0]: pushes move values between registers, where a stack with a pointer would be in
// memory.
template <int kCount, int kDepth>
__global__ void __launch_bounds__(kThreads)
    tree_sum_kernel(std::size_t count, StackProgram program, float* out) {
  wait_for_previous();
  const std::size_t at = place<kCount>();
  if (at >= count) return;
  const std::size_t left = count - at;
  Pack<float, kCount> stack[kDepth];
  Pack<float, kCount> next = load<kCount>(program.input[0] + at, left);
  for (int j = 0; j < program.inputs; ++j) {
    Pack<float, kCount> x = next;
    if (j + 1 < program.inputs) next = load<kCount>(program.input[j + 1] + at, left);
    for (int m = program.merges[j]; m > 0; --m) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.v[e] = stack[0].v[e] + x.v[e];
#pragma unroll
      for (int k = 0; k + 1 < kDepth; ++k) stack[k] = stack[k + 1];
    }
#pragma unroll
    for (int k = kDepth - 1; k > 0; --k) stack[k] = stack[k - 1];
    stack[0] = x;
  }
  store(out + at, stack[0], left);
}

StackProgram stack_program(const TreeSum& sum, std::span<const float* const> inputs) {
  StackProgram program;
  program.inputs = sum.inputs;
  for (int j = 0; j < sum.inputs; ++j) program.input[j] = inputs[j];
  // plan_sum() lists additions in post-order: each addition takes the two topmost sums, as soon as the last
  // input of its right operand is pushed.
  std::vector<int> last_input(sum.inputs + sum.temporaries);
  for (int j = 0; j < sum.inputs; ++j) last_input[j] = j;
  for (const Addition& addition : sum.additions) {
    last_input[addition.result] = last_input[addition.right];
    ++program.merges[last_input[addition.right]];
  }
  return program;
}

// x / count: multiplies by the inverse where that gives the same bits.
struct Division {
  float count, inverse;
  bool by_inverse;
  __host__ __device__ explicit Division(float count) : count(count), inverse(1 / count) {
    int exponent = 0;
    by_inverse = frexpf(count, &exponent) == 0.5f;
  }
};
__device__ inline float divided(float x, const Division& by) {
  return by.by_inverse ? x * by.inverse : x / by.count;
}

template <int kCount>
__global__ void __launch_bounds__(kThreads) mean_kernel(std::size_t count, float* values, Division division) {
  wait_for_previous();
  const std::size_t at = place<kCount>();
  if (at >= count) return;
  Pack<float, kCount> x = load<kCount>(values + at, count - at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) x.v[e] = divided(x.v[e], division);
  store(values + at, x, count - at);
}

// Sums the block's values in pairs; only thread 0 gets the sum.
__device__ inline double block_sum(double value) {
  SHARED_ARRAY(double, sums, kThreads);
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

// A thread handles elements 4 * t .. 4 * t + 3 of every gridDim.x * kThreads * 4.
template <int kCount>
__global__ void __launch_bounds__(kThreads)
    square_norm_kernel(std::size_t count, const float* values, const float* divisor, double* partials) {
  wait_for_previous();
  const Division division(*divisor);
  double sums[4] = {};
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads * 4;
  for (std::size_t at = place<4>(); at < count; at += step) {
    Float4 x;
    if constexpr (kCount == 4)
      x = load<4>(values + at, count - at);
    else
      for (int e = 0; e < 4; ++e) x.v[e] = at + e < count ? values[at + e] : 0.0f;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const double value = divided(x.v[e], division);
      sums[e] += value * value;
    }
  }
  const double sum = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    square_norm_total_kernel(int partial_count, const double* partials, double* result) {
  wait_for_previous();
  double own = 0;
  for (int i = threadIdx.x; i < partial_count; i += kThreads) own += partials[i];
  const double sum = block_sum(own);
  if (threadIdx.x == 0) *result = sum;
}

// ---- the optimizers

// Computes the gradient for a rule from the sum.
struct Gradient {
  Division division;
  float clip;
  explicit Gradient(const GradientScale& scale) : division(scale.count), clip(scale.clip) {}
};
__device__ inline float gradient_of(float sum, const Gradient& gradient) {
  const float mean = divided(sum, gradient.division);
  return gradient.clip == 1.0f ? mean : mean * gradient.clip;
}

// The values that an element's step changes. Slots that the rule does not have are not touched.
struct Element {
  float parameter, first, second;
};

// The elements that decay: those behind an odd number of boundaries.
struct Decaying {
  const std::uint64_t* boundaries;
  std::size_t count;  // of boundaries
  // The number of boundaries at or before this element.
  __device__ std::size_t passed(std::size_t at) const {
    std::size_t begin = 0, end = count;
    while (begin < end) {
      const std::size_t middle = (begin + end) / 2;
      if (boundaries[middle] <= at)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
  // `passed`: that of an element in front of `at`, and then that of `at`.
  __device__ bool has(std::size_t at, std::size_t& passed) const {
    while (passed < count && boundaries[passed] <= at) ++passed;
    return passed % 2 == 1;
  }
};

struct Sgd : Decaying {
  static constexpr int kSlots = 0;
  SgdRule rule;
  Sgd(const SgdRule& of, const Decaying& decaying) : Decaying(decaying), rule(of) {}
  __device__ float decay(std::size_t at, std::size_t& passed) const {
    return rule.decays_all || has(at, passed) ? rule.weight_decay : 0.0f;
  }
  __device__ void step(float g, std::size_t at, std::size_t& passed, Element& x) const {
    x.parameter -= rule.rate * (g + decay(at, passed) * x.parameter);
  }
};

struct SgdMomentum : Sgd {
  static constexpr int kSlots = 1;
  using Sgd::Sgd;
  __device__ void step(float gradient, std::size_t at, std::size_t& passed, Element& x) const {
    const float g = gradient + decay(at, passed) * x.parameter;
    x.first = x.first * rule.momentum + g;
    x.parameter -= rule.rate * (rule.nesterov ? g + rule.momentum * x.first : x.first);
  }
};

struct AdamW : Decaying {
  static constexpr int kSlots = 2;
  AdamWRule rule;
  AdamW(const AdamWRule& of, const Decaying& decaying) : Decaying(decaying), rule(of) {}
  __device__ void step(float g, std::size_t at, std::size_t& passed, Element& x) const {
    const float keep = has(at, passed) ? rule.keep : 1.0f;
    x.first = x.first * rule.beta1 + rule.rest1 * g;
    x.second = x.second * rule.beta2 + rule.rest2 * g * g;
    const float denominator = sqrtf(x.second) / rule.root_correction + rule.epsilon;
    x.parameter = x.parameter * keep - rule.step_size * (x.first / denominator);
  }
};

template <int kCount, typename Rule>
__global__ void __launch_bounds__(kThreads)
    update_kernel(std::size_t count, Rule rule, Gradient gradient, const float* sum, float* parameters,
                  float* first, float* second, __nv_bfloat16* copy) {
  wait_for_previous();
  const std::size_t at = place<kCount>();
  if (at >= count) return;
  const std::size_t left = count - at;
  const Pack<float, kCount> g = load<kCount>(sum + at, left);
  Pack<float, kCount> p = load<kCount>(parameters + at, left), a, b;
  if constexpr (Rule::kSlots > 0) a = load<kCount>(first + at, left);
  if constexpr (Rule::kSlots > 1) b = load<kCount>(second + at, left);
  Pack<__nv_bfloat16, kCount> rounded;
  std::size_t passed = rule.passed(at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    Element x{p.v[e], Rule::kSlots > 0 ? a.v[e] : 0.0f, Rule::kSlots > 1 ? b.v[e] : 0.0f};
    rule.step(gradient_of(g.v[e], gradient), at + e, passed, x);
    p.v[e] = x.parameter, a.v[e] = x.first, b.v[e] = x.second;
    rounded.v[e] = __float2bfloat16_rn(x.parameter);
  }
  store(parameters + at, p, left);
  if constexpr (Rule::kSlots > 0) store(first + at, a, left);
  if constexpr (Rule::kSlots > 1) store(second + at, b, left);
  if (copy != nullptr) store(copy + at, rounded, left);
}

__global__ void __launch_bounds__(kThreads)
    running_statistics_kernel(RunningStatistics s, float targets, const float* sum, float* parameters) {
  wait_for_previous();
  const std::size_t c = place<1>();
  if (c >= s.channels) return;
  const float count = targets * s.values, unbiased = count / (count - 1);
  const float shift = sum[s.begin + c] / targets, square = sum[s.begin + s.channels + c] / targets;
  const float variance = square - shift * shift;
  float &mean = parameters[s.begin + c], &running = parameters[s.begin + s.channels + c];
  mean += s.momentum * shift;
  running += s.momentum * ((variance < 0 ? 0 : variance) * unbiased - running);
}

template <typename Rule>
void update(cudaStream_t stream, const Rule& rule, const GradientScale& scale, const float* sum,
            float* parameters, float* first, float* second, __nv_bfloat16* copy, std::size_t size) {
  if (size == 0) return;
  if (wide({sum, parameters, first, second, copy}))
    launch(update_kernel<4, Rule>, blocks_of(size, kThreads * 4), kThreads, 0, stream, size, rule,
           Gradient(scale), sum, parameters, first, second, copy);
  else
    launch(update_kernel<1, Rule>, blocks_of(size, kThreads), kThreads, 0, stream, size, rule,
           Gradient(scale), sum, parameters, first, second, copy);
}

}  // namespace

void accumulate(cudaStream_t stream, float* left, const float* right, std::size_t floats) {
  if (floats == 0) return;
  if (wide({left, right}))
    launch(add_right_kernel<4>, blocks_of(floats, kThreads * 4), kThreads, 0, stream, floats, left, right);
  else
    launch(add_right_kernel<1>, blocks_of(floats, kThreads), kThreads, 0, stream, floats, left, right);
}

void tree_sum(cudaStream_t stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
              std::size_t floats) {
  if (floats == 0) return;
  const StackProgram program = stack_program(sum, inputs);
  bool packs = wide({out});
  for (const float* const input : inputs) packs = packs && wide({input});
  constexpr int kShallow = 8;  // so many packs fit in the registers beside the other values
  // The number of waiting sums is that of temporaries; the topmost sum comes on top of them.
  if (packs && sum.temporaries < kShallow)
    launch(tree_sum_kernel<4, kShallow>, blocks_of(floats, kThreads * 4), kThreads, 0, stream, floats,
           program, out);
  else
    launch(tree_sum_kernel<1, kTreeDepth>, blocks_of(floats, kThreads), kThreads, 0, stream, floats, program,
           out);
}

void mean(cudaStream_t stream, float* values, std::size_t floats, float count) {
  if (floats == 0) return;
  if (wide({values}))
    launch(mean_kernel<4>, blocks_of(floats, kThreads * 4), kThreads, 0, stream, floats, values,
           Division(count));
  else
    launch(mean_kernel<1>, blocks_of(floats, kThreads), kThreads, 0, stream, floats, values, Division(count));
}

void square_norm(cudaStream_t stream, const float* values, std::size_t floats, const float* count,
                 double* workspace, double* result) {
  const std::size_t wanted = (floats + kThreads * 4 - 1) / (kThreads * 4);
  const auto blocks = static_cast<unsigned>(wanted < kSquareNormWorkspace ? wanted : kSquareNormWorkspace);
  if (blocks > 0)
    launch(wide({values}) ? square_norm_kernel<4> : square_norm_kernel<1>, blocks, kThreads, 0, stream,
           floats, values, count, workspace);
  launch(square_norm_total_kernel, 1, kThreads, 0, stream, static_cast<int>(blocks), workspace, result);
}

void sgd(cudaStream_t stream, const SgdRule& rule, const GradientScale& scale,
         const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
         __nv_bfloat16* copy, std::size_t size) {
  update(stream, Sgd(rule, {boundaries, 2 * ranges}), scale, sum, parameters, nullptr, nullptr, copy, size);
}

void sgd_momentum(cudaStream_t stream, const SgdRule& rule, const GradientScale& scale,
                  const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
                  float* buffer, __nv_bfloat16* copy, std::size_t size) {
  update(stream, SgdMomentum(rule, {boundaries, 2 * ranges}), scale, sum, parameters, buffer, nullptr, copy,
         size);
}

void adamw(cudaStream_t stream, const AdamWRule& rule, const GradientScale& scale,
           const std::uint64_t* boundaries, std::size_t ranges, const float* sum, float* parameters,
           float* mean, float* mean_square, __nv_bfloat16* copy, std::size_t size) {
  update(stream, AdamW(rule, {boundaries, 2 * ranges}), scale, sum, parameters, mean, mean_square, copy,
         size);
}

void running_statistics(cudaStream_t stream, const RunningStatistics& statistics, float targets,
                        const float* sum, float* parameters) {
  launch(running_statistics_kernel, blocks_of(statistics.channels, kThreads), kThreads, 0, stream, statistics,
         targets, sum, parameters);
}

}  // namespace dtrun::worker::cuda
