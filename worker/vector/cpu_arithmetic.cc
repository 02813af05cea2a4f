// The CPU's vector arithmetic: the loops of loops.h on the calling thread.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/vector/arithmetic.h"
#include "worker/vector/loops.h"

namespace dtrun::worker {
namespace {

// Floats that are summed through the whole tree before the next ones: temporaries stay in the L1 cache.
constexpr std::size_t kChunk = 1024;

// Floats of a pass that applies several operations one after the other.
constexpr std::size_t kPass = 4096;
static_assert(kPass % vector::kSquareSums == 0);

// The Euclidean norm, summed in an order that only the length decides: the same on every replica.
class Norm {
 public:
  // REQUIRES: each piece but the last has a multiple of kSquareSums values.
  void add(std::span<const float> values) {
    vector::loops().add_squares(values.data(), values.size(), sums_.data());
  }
  double value() const {
    double total = 0;
    for (const double sum : sums_) total += sum;
    return std::sqrt(total);
  }

 private:
  std::array<double, vector::kSquareSums> sums_{};
};

// Divides, and adds the result to `norm` if there is one. Multiplication by the inverse of a power of two
// gives the bits of the division, and is faster.
void make_mean(std::span<float> sum, float count, Norm* norm) {
  int exponent = 0;
  const bool power_of_two = std::frexp(count, &exponent) == 0.5f;
  for (std::size_t at = 0; at < sum.size(); at += kPass) {
    const std::span<float> part = sum.subspan(at, std::min(kPass, sum.size() - at));
    if (power_of_two)
      vector::loops().scale(part.data(), 1 / count, part.size());
    else
      vector::loops().divide(part.data(), count, part.size());
    if (norm != nullptr) norm->add(part);
  }
}

// torch.nn.utils.clip_grad_norm_
void clip(std::span<float> gradient, double norm, double max_norm) {
  const auto factor = static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
  if (factor != 1.0f) vector::loops().scale(gradient.data(), factor, gradient.size());
}

// Calls part(decays, begin, end) for all that an optimizer changes: ranges that decay, and what is between
// them.
template <typename Part>
void each_part(const UpdatedVectors& v, std::span<const VectorRange> ranges, bool rest_decays,
               const Part& part) {
  std::size_t done = v.running;
  for (const VectorRange& range : ranges) {
    part(rest_decays, done, range.begin);
    part(true, range.begin, range.end);
    done = range.end;
  }
  part(rest_decays, done, v.size);
}

// `gradient`: flat, as in all that follows.
void apply(const SgdRule& rule, const float* gradient, const UpdatedVectors& v) {
  SgdRule without = rule;
  without.weight_decay = 0;
  const std::span<const VectorRange> ranges = rule.decays_all ? std::span<const VectorRange>() : v.decaying;
  each_part(v, ranges, rule.decays_all, [&](bool decays, std::size_t begin, std::size_t end) {
    const SgdRule& own = decays ? rule : without;
    if (v.slots.empty())
      vector::loops().sgd(own, gradient + begin, v.parameters + begin, end - begin);
    else
      vector::loops().sgd_momentum(own, gradient + begin, v.parameters + begin, v.slots[0] + begin,
                                   end - begin);
  });
}
void apply(const AdamWRule& rule, const float* gradient, const UpdatedVectors& v) {
  const std::span<const VectorRange> ranges = rule.keep == 1 ? std::span<const VectorRange>() : v.decaying;
  each_part(v, ranges, false, [&](bool decays, std::size_t begin, std::size_t end) {
    vector::loops().adamw(rule, decays ? rule.keep : 1, gradient + begin, v.parameters + begin,
                          v.slots[0] + begin, v.slots[1] + begin, end - begin);
  });
}

// As torch.nn.SyncBatchNorm: the variance is the unbiased one.
void apply(const RunningStatistics& s, float targets, const float* sum, float* parameters) {
  const float count = targets * s.values, unbiased = count / (count - 1);
  const float *const shifts = sum + s.begin, *const squares = shifts + s.channels;
  float *const means = parameters + s.begin, *const variances = means + s.channels;
  for (std::size_t c = 0; c < s.channels; ++c) {
    const float shift = shifts[c] / targets, square = squares[c] / targets;
    const float variance = square - shift * shift;
    means[c] += s.momentum * shift;
    variances[c] += s.momentum * ((variance < 0 ? 0 : variance) * unbiased - variances[c]);
  }
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

  void accumulate(Stream&, float* left, const float* right, std::size_t floats) override {
    vector::loops().add(left, right, left, floats);
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
        vector::loops().add(operand(a.left), operand(a.right), result, count);
      }
    }
  }

  StepResult update(Stream&, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors) override {
    const float targets = sum[2];
    StepResult result{.stats = {.loss = sum[0], .correct = sum[1], .targets = targets}};
    const std::span<float> gradient(sum + kStatisticsFloats, vectors.size);
    const bool norm_wanted = rule.max_norm > 0 || rule.norm_wanted || rule.finite_only;
    Norm norm;
    make_mean(gradient.subspan(vectors.running), targets, norm_wanted ? &norm : nullptr);
    if (norm_wanted) result.norm = norm.value();
    if (rule.finite_only && !(std::isfinite(result.stats.loss) && std::isfinite(result.norm))) {
      result.applied = false;
      return result;
    }
    if (rule.max_norm > 0) clip(gradient.subspan(vectors.running), result.norm, rule.max_norm);
    std::visit([&](const auto& optimizer) { apply(optimizer, gradient.data(), vectors); }, rule.optimizer);
    for (const RunningStatistics& statistics : vectors.statistics)
      apply(statistics, targets, gradient.data(), vectors.parameters);
    return result;
  }
};

}  // namespace

std::unique_ptr<Arithmetic> make_cpu_arithmetic() { return std::make_unique<CpuArithmetic>(); }

}  // namespace dtrun::worker
