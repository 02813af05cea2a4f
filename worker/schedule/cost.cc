#include "worker/schedule/cost.h"

#include <algorithm>
#include <span>

#include "proto/core/overloaded.h"

namespace dtrun::worker::schedule {
namespace {

// The flops of `matmuls` matmuls, each with a term for each pair of a token and itself or an earlier one.
double attention_flops(std::size_t samples, std::size_t tokens, std::size_t width, int matmuls) {
  const auto t = static_cast<double>(tokens);
  return 2.0 * matmuls * static_cast<double>(samples * width) * t * (t + 1) / 2;
}

double convolution_flops(const ImageShape& s) {
  return 2.0 * s.samples * s.in_channels * s.kernel * s.kernel * static_cast<double>(s.out_size());
}

double flops_of(const Work& work) {
  return std::visit(
      Overloaded{
          [](const Matmul& w) { return 2.0 * static_cast<double>(w.shape.m * w.shape.n * w.shape.k); },
          // Scores and sums of values; backward: the scores, and the gradients of all four factors.
          [](const AttentionForward& w) { return attention_flops(w.samples, w.tokens, w.width, 2); },
          [](const AttentionBackward& w) { return attention_flops(w.samples, w.tokens, w.width, 5); },
          [](const Convolve& w) { return convolution_flops(w.shape); },
          [](const ConvolveInGradient& w) { return convolution_flops(w.shape); },
          [](const ConvolveWeightGradient& w) { return convolution_flops(w.shape); },
          [](const auto&) { return 0.0; },
      },
      work);
}

// An extent that is listed twice counts once.
double bytes_of(std::span<const ByteRange> extents) {
  double bytes = 0;
  for (auto extent = extents.begin(); extent != extents.end(); ++extent) {
    const bool again = std::any_of(extents.begin(), extent, [&](const ByteRange& before) {
      return before.place == extent->place && before.bytes == extent->bytes;
    });
    if (!again) bytes += static_cast<double>(extent->bytes);
  }
  return bytes;
}

}  // namespace

OpCost cost_of(const Step& step) {
  OpCost cost{.flops = flops_of(step.work), .read = bytes_of(step.reads), .written = bytes_of(step.writes)};
  if (std::holds_alternative<Ready>(step.work)) return {};
  if (const auto* const embed = std::get_if<Embed>(&step.work)) {
    // Reads one row of the matrix for each row of the result, not the whole matrix.
    const auto in_weight = [&](const ByteRange& extent) { return extent.place == embed->weight; };
    cost.read -= static_cast<double>(std::ranges::find_if(step.reads, in_weight)->bytes) - cost.written;
  }
  if (const auto* const embed = std::get_if<EmbedBackward>(&step.work)) {
    const auto d = std::ranges::find_if(
        step.reads, [&](const ByteRange& extent) { return extent.place == embed->out_gradient; });
    // Reads three lists that give the rows of each token, and adds the sum of rows to the token's gradient.
    const auto rows = static_cast<double>(embed->rows);
    const double sums =
        static_cast<double>(std::min(embed->rows, embed->classes) * embed->width) * sizeof(float);
    cost.read = static_cast<double>(d->bytes) + 3 * rows * sizeof(std::int32_t) + (embed->add ? sums : 0);
    cost.written = sums;
  }
  return cost;
}

}  // namespace dtrun::worker::schedule
