#include "worker/trainer/evaluation.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "worker/base/pulse.h"
#include "worker/base/stop_point.h"
#include "worker/collective/tags.h"
#include "worker/core/tree.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/microbatch_input.h"

namespace dtrun::worker {

namespace {

// One leaf's sums. A rank that was told to stop skips its other leaves, and reports that by `abandoned`.
struct LeafSums {
  float loss = 0, correct = 0, abandoned = 0;
};

LeafSums run_leaf(Lane& lane, const Dataset& data, std::int64_t leaf, int capacity, MicrobatchInput& input) {
  stop_point(StopPoint::kEvaluating);
  const std::int64_t first = leaf * capacity;
  std::vector<std::uint32_t> samples(std::min<std::int64_t>(capacity, data.size() - first));
  std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
  const MicrobatchStats stats = lane.evaluate(input.fill(samples));
  Pulse::beat();
  return {.loss = stats.loss, .correct = stats.correct};
}

// Gives every rank the sums of every leaf.
void gather(ProcessGroup& group, std::vector<LeafSums>& leaves) {
  const auto part_of = [&](int rank) {
    const LeafRange range = leaves_of_rank(static_cast<std::int64_t>(leaves.size()), rank, group.size());
    return std::as_writable_bytes(std::span(leaves).subspan(range.begin, range.end - range.begin));
  };
  group.start_gather(kTagEvaluation, part_of)->wait();
}

LeafSums tree_total(const std::vector<LeafSums>& leaves) {
  const auto count = static_cast<std::int64_t>(leaves.size());
  std::vector<Block> blocks;
  std::vector<const float*> inputs;
  for (std::int64_t leaf = 0; leaf < count; ++leaf) {
    blocks.push_back({leaf, 0});
    inputs.push_back(&leaves[leaf].loss);
  }
  static_assert(sizeof(LeafSums) == 3 * sizeof(float));
  float total[3];
  const auto host = make_cpu_arithmetic();
  host->sum(*host->make_stream(), plan_sum(blocks, count), inputs, total, 3);
  return {.loss = total[0], .correct = total[1], .abandoned = total[2]};
}

}  // namespace

std::optional<Evaluation> evaluate(const Dataset& data, int micro_batch_size, const float* weights,
                                   ProcessGroup& group, LaneTeam& lanes, const std::function<bool()>& stop) {
  std::vector<LeafSums> leaves((data.size() + micro_batch_size - 1) / micro_batch_size);
  const LeafRange own = leaves_of_rank(static_cast<std::int64_t>(leaves.size()), group.rank(), group.size());
  std::atomic<std::int64_t> next{own.begin};
  lanes.run([&](int, Lane& lane) {
    MicrobatchInput input(data, micro_batch_size);
    lane.parameters_changed(weights);
    for (std::int64_t leaf; (leaf = next.fetch_add(1)) < own.end;) {
      group.check();
      leaves[leaf] = stop() ? LeafSums{.abandoned = 1} : run_leaf(lane, data, leaf, micro_batch_size, input);
    }
  });
  gather(group, leaves);
  const LeafSums total = tree_total(leaves);
  if (total.abandoned > 0) return std::nullopt;
  const auto targets = static_cast<double>(data.size()) * data.spec().targets;
  return Evaluation{.loss = mean(total.loss, targets), .accuracy = total.correct / targets};
}

}  // namespace dtrun::worker
