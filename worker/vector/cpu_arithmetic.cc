// The CPU's vector arithmetic: plain loops on the calling thread, one pass over the vectors each.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/vector/arithmetic.h"

namespace dtrun::worker {
namespace {

// Floats that are summed through the whole tree before the next ones: temporaries stay in the L1 cache.
constexpr std::size_t kChunk = 1024;

void add(const float* left, const float* right, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

// Euclidean, summed in fp64 in an order that only the length decides: the same on every replica.
double norm_of(std::span<const float> gradient) {
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

// torch.nn.utils.clip_grad_norm_
void clip(std::span<float> gradient, double norm, double max_norm) {
  const auto factor = static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
  if (factor == 1.0f) return;
  for (float& value : gradient) value *= factor;
}

void apply_plain(const SgdRule& rule, const float* __restrict gradient, float* __restrict parameters,
                 std::size_t size) {
  const float rate = rule.rate, decay = rule.weight_decay;
  for (std::size_t i = 0; i < size; ++i) parameters[i] -= rate * (gradient[i] + decay * parameters[i]);
}

void apply_momentum(const SgdRule& rule, const float* __restrict gradient, float* __restrict parameters,
                    float* __restrict buffer, std::size_t size) {
  const float rate = rule.rate, decay = rule.weight_decay, momentum = rule.momentum;
  for (std::size_t i = 0; i < size; ++i) {
    buffer[i] = buffer[i] * momentum + (gradient[i] + decay * parameters[i]);
    parameters[i] -= rate * buffer[i];
  }
}

void apply_nesterov(const SgdRule& rule, const float* __restrict gradient, float* __restrict parameters,
                    float* __restrict buffer, std::size_t size) {
  const float rate = rule.rate, decay = rule.weight_decay, momentum = rule.momentum;
  for (std::size_t i = 0; i < size; ++i) {
    const float g = gradient[i] + decay * parameters[i];
    buffer[i] = buffer[i] * momentum + g;
    parameters[i] -= rate * (g + momentum * buffer[i]);
  }
}

// Elements begin .. end - 1; of their parameters `keep` is left before the step.
void apply_adamw(const AdamWRule& rule, float keep, const float* __restrict gradient,
                 float* __restrict parameters, float* __restrict mean, float* __restrict mean_square,
                 std::size_t begin, std::size_t end) {
  const AdamWRule f = rule;
  for (std::size_t i = begin; i < end; ++i) {
    const float g = gradient[i];
    mean[i] = mean[i] * f.beta1 + f.rest1 * g;
    mean_square[i] = mean_square[i] * f.beta2 + f.rest2 * g * g;
    const float denominator = std::sqrt(mean_square[i]) / f.root_correction + f.epsilon;
    parameters[i] = parameters[i] * keep - f.step_size * (mean[i] / denominator);
  }
}

void apply(const SgdRule& rule, const float* gradient, const UpdatedVectors& v) {
  if (v.slots.empty())
    apply_plain(rule, gradient, v.parameters, v.size);
  else if (rule.nesterov)
    apply_nesterov(rule, gradient, v.parameters, v.slots[0], v.size);
  else
    apply_momentum(rule, gradient, v.parameters, v.slots[0], v.size);
}
void apply(const AdamWRule& rule, const float* gradient, const UpdatedVectors& v) {
  const auto part = [&](float keep, std::size_t begin, std::size_t end) {
    apply_adamw(rule, keep, gradient, v.parameters, v.slots[0], v.slots[1], begin, end);
  };
  if (rule.keep == 1) return part(1, 0, v.size);
  std::size_t done = 0;
  for (const VectorRange& range : v.decaying) {
    part(1, done, range.begin);
    part(rule.keep, range.begin, range.end);
    done = range.end;
  }
  part(1, done, v.size);
}

class CpuStream final : public Stream {
 public:
  Event record() override { return {}; }
  void after(const Event&) override {}
  void wait() override {}
};

class CpuArithmetic final : public Arithmetic {
 public:
  Buffer allocate(Where, std::size_t floats) override { return Buffer(floats); }
  bool device_is_host() const override { return true; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }

  void copy(Stream&, float* to, const float* from, std::size_t floats) override {
    std::copy_n(from, floats, to);
  }

  void add_right(Stream&, float* left, const float* right, std::size_t floats) override {
    add(left, right, left, floats);
  }

  void sum(Stream&, const TreeSum& sum, std::span<const float* const> inputs, float* out,
           std::size_t floats) override {
    if (sum.additions.empty()) {
      std::copy_n(inputs[0], floats, out);
      return;
    }
    std::vector<float> scratch(sum.temporaries * kChunk);
    for (std::size_t at = 0; at < floats; at += kChunk) {
      const std::size_t count = std::min(kChunk, floats - at);
      auto operand = [&](int index) {
        return index < sum.inputs ? inputs[index] + at : scratch.data() + (index - sum.inputs) * kChunk;
      };
      for (const Addition& a : sum.additions) {
        float* result =
            &a == &sum.additions.back() ? out + at : scratch.data() + (a.result - sum.inputs) * kChunk;
        add(operand(a.left), operand(a.right), result, count);
      }
    }
  }

  StepResult update(Stream&, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors) override {
    const float targets = sum[2];
    StepResult result{.stats = {.loss = sum[0], .correct = sum[1], .targets = targets}};
    const std::span<float> gradient(sum + kStatisticsFloats, vectors.size);
    for (float& value : gradient) value /= targets;
    if (rule.max_norm > 0 || rule.norm_wanted || rule.finite_only) result.norm = norm_of(gradient);
    if (rule.finite_only && !(std::isfinite(result.stats.loss) && std::isfinite(result.norm))) {
      result.applied = false;
      return result;
    }
    if (rule.max_norm > 0) clip(gradient, result.norm, rule.max_norm);
    std::visit([&](const auto& optimizer) { apply(optimizer, gradient.data(), vectors); }, rule.optimizer);
    return result;
  }
};

}  // namespace

std::unique_ptr<Arithmetic> make_cpu_arithmetic() { return std::make_unique<CpuArithmetic>(); }

}  // namespace dtrun::worker
