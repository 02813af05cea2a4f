// The CPU's vector arithmetic: the loops of loops.h on the calling thread.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "worker/base/error.h"
#include "worker/vector/arithmetic.h"
#include "worker/vector/loops.h"

namespace dtrun::worker {
namespace {

// Floats that are summed through the whole tree before the next ones: temporaries stay in the L1 cache.
constexpr std::size_t kChunk = 1024;

// Floats that all operations of an update are applied to before the next ones: they stay in the L1 cache.
constexpr std::size_t kPass = 4096;
static_assert(kPass % vector::kSquareSums == 0);

// Floats that one thread goes through: the norm's sum is one of pieces, so that no number of threads changes
// its order.
constexpr std::size_t kPiece = 16 * kPass;

// The parts of [begin, end) that are no longer than `size`, in order.
template <typename Part>
void each_of_size(const VectorRange& range, std::size_t size, const Part& part) {
  for (std::size_t at = range.begin; at < range.end; at += size)
    part(VectorRange{at, std::min(at + size, range.end)});
}

// piece(number, range) for each piece of `whole`, on all threads of `parallel` if there are several.
void each_piece(const VectorRange& whole, const Parallel& parallel,
                const std::function<void(std::size_t, const VectorRange&)>& piece) {
  const std::size_t pieces = (whole.size() + kPiece - 1) / kPiece;
  const auto work = [&](std::size_t index, std::size_t count) {
    for (std::size_t number = pieces * index / count; number < pieces * (index + 1) / count; ++number) {
      const std::size_t begin = whole.begin + number * kPiece;
      piece(number, {begin, std::min(begin + kPiece, whole.end)});
    }
  };
  if (pieces > 1 && parallel)
    parallel([&](int index, int count) {
      work(static_cast<std::size_t>(index), static_cast<std::size_t>(count));
    });
  else
    work(0, 1);
}

// Divides by the number of targets. Multiplication by the inverse of a power of two gives the bits of the
// division, and is faster.
class Mean {
 public:
  explicit Mean(float targets) : targets_(targets) {
    int exponent = 0;
    power_of_two_ = std::frexp(targets, &exponent) == 0.5f;
  }
  void make(const float* sum, float* out, std::size_t count) const {
    if (power_of_two_)
      vector::loops().scale(sum, 1 / targets_, out, count);
    else
      vector::loops().divide(sum, targets_, out, count);
  }

 private:
  float targets_;
  bool power_of_two_ = false;
};

using Pass = std::array<float, kPass>;

// The mean gradient's Euclidean norm, summed in an order that only the length decides: the same on every
// replica.
double norm_of(const Mean& mean, const float* gradient, const VectorRange& whole, const Parallel& parallel) {
  using Squares = std::array<double, vector::kSquareSums>;
  std::vector<Squares> pieces((whole.size() + kPiece - 1) / kPiece);
  each_piece(whole, parallel, [&](std::size_t number, const VectorRange& piece) {
    each_of_size(piece, kPass, [&](const VectorRange& part) {
      Pass values;
      mean.make(gradient + part.begin, values.data(), part.size());
      vector::loops().add_squares(values.data(), part.size(), pieces[number].data());
    });
  });
  Squares sums{};
  for (const Squares& piece : pieces)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += piece[i];
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

// torch.nn.utils.clip_grad_norm_
float clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6))) : 1;
}

// Calls part(decays, begin, end) for what decays within `range`, and for what is between.
template <typename Part>
void each_part(const VectorRange& range, std::span<const VectorRange> decaying, bool rest_decays,
               const Part& part) {
  const auto first =
      std::ranges::upper_bound(decaying, range.begin, {}, [](const VectorRange& one) { return one.end; });
  std::size_t done = range.begin;
  for (auto one = first; one != decaying.end() && one->begin < range.end; ++one) {
    const std::size_t begin = std::max(one->begin, done), end = std::min(one->end, range.end);
    part(rest_decays, done, begin);
    part(true, begin, end);
    done = end;
  }
  part(rest_decays, done, range.end);
}

// `gradient`: of `range` alone.
void apply(const SgdRule& rule, const float* gradient, const UpdatedVectors& v, const VectorRange& range) {
  SgdRule without = rule;
  without.weight_decay = 0;
  const std::span<const VectorRange> decaying = rule.decays_all ? std::span<const VectorRange>() : v.decaying;
  each_part(range, decaying, rule.decays_all, [&](bool decays, std::size_t begin, std::size_t end) {
    const SgdRule& own = decays ? rule : without;
    const float* const mean = gradient + (begin - range.begin);
    if (v.slots.empty())
      vector::loops().sgd(own, mean, v.parameters + begin, end - begin);
    else
      vector::loops().sgd_momentum(own, mean, v.parameters + begin, v.slots[0] + begin, end - begin);
  });
}
void apply(const AdamWRule& rule, const float* gradient, const UpdatedVectors& v, const VectorRange& range) {
  const std::span<const VectorRange> decaying = rule.keep == 1 ? std::span<const VectorRange>() : v.decaying;
  each_part(range, decaying, false, [&](bool decays, std::size_t begin, std::size_t end) {
    vector::loops().adamw(rule, decays ? rule.keep : 1, gradient + (begin - range.begin),
                          v.parameters + begin, v.slots[0] + begin, v.slots[1] + begin, end - begin);
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

  StepResult update(Stream&, const UpdateRule& rule, float* sum, const UpdatedVectors& vectors,
                    const Parallel& parallel) override {
    const float targets = sum[2];
    StepResult result{.stats = {.loss = sum[0], .correct = sum[1], .targets = targets}};
    float* const gradient = sum + kStatisticsFloats;
    const Mean mean(targets);
    const VectorRange trained{vectors.running, vectors.size};
    if (rule.max_norm > 0 || rule.norm_wanted || rule.finite_only)
      result.norm = norm_of(mean, gradient, trained, parallel);
    if (rule.finite_only && !(std::isfinite(result.stats.loss) && std::isfinite(result.norm))) {
      mean.make(gradient + trained.begin, gradient + trained.begin, trained.size());
      result.applied = false;
      return result;
    }
    const float clip = clip_factor(result.norm, rule.max_norm);
    each_piece(trained, parallel, [&](std::size_t, const VectorRange& piece) {
      each_of_size(piece, kPass, [&](const VectorRange& part) {
        Pass values;
        mean.make(gradient + part.begin, values.data(), part.size());
        if (clip != 1) vector::loops().scale(values.data(), clip, values.data(), part.size());
        std::visit([&](const auto& optimizer) { apply(optimizer, values.data(), vectors, part); },
                   rule.optimizer);
      });
    });
    for (const RunningStatistics& statistics : vectors.statistics)
      apply(statistics, targets, gradient, vectors.parameters);
    return result;
  }

  StepResult outer_update(Stream&, const OuterRule& rule, float* sum, const UpdatedVectors& vectors,
                          const Parallel& parallel) override {
    StepResult result{.stats = {.loss = sum[0], .correct = sum[1], .targets = sum[2]}};
    float* const mean = sum + kStatisticsFloats;
    Mean(rule.replicas).make(mean, mean, vectors.size);
    std::copy_n(mean, vectors.running, vectors.parameters);
    const VectorRange moved{.begin = vectors.running, .end = vectors.size};
    each_piece(moved, parallel, [&](std::size_t, const VectorRange& piece) {
      float* const buffer = vectors.slots.empty() ? nullptr : vectors.slots[0] + piece.begin;
      vector::loops().outer(rule, mean + piece.begin, vectors.parameters + piece.begin, buffer, piece.size());
    });
    result.norm = norm_of(Mean(1), mean, moved, parallel);
    return result;
  }
};

}  // namespace

StepResult Arithmetic::outer_update(Stream&, const OuterRule&, float*, const UpdatedVectors&,
                                    const Parallel&) {
  throw WorkerError(kExitSoftware, "this device has no outer step");
}

std::unique_ptr<Arithmetic> make_cpu_arithmetic() { return std::make_unique<CpuArithmetic>(); }

}  // namespace dtrun::worker
