#include "worker/trainer/evaluation.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "worker/base/pulse.h"
#include "worker/core/tree.h"
#include "worker/trainer/gradient_step.h"

namespace dtrun::worker {

namespace {

// Below the tags of the collective's own operations, above those of the gradient exchange's first round.
constexpr std::uint32_t kTagLeaves = 0x7ffffff0;

// One leaf's sums. `abandoned` travels with them: a rank that was told to stop leaves the rest out.
struct LeafSums {
  float loss = 0, correct = 0, abandoned = 0;
};

LeafSums run_leaf(Lane& lane, const Dataset& data, std::int64_t leaf, int capacity, std::vector<float>& x,
                  std::vector<std::int32_t>& labels) {
  const std::int64_t first = leaf * capacity;
  const int samples = static_cast<int>(std::min<std::int64_t>(capacity, data.size() - first));
  std::vector<std::uint32_t> indices(samples);
  std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
  data.fill(indices, x.data(), labels.data());
  std::fill(x.begin() + samples * data.shape().size(), x.end(), 0.0f);
  std::fill(labels.begin() + samples, labels.end(), 0);
  const MicrobatchStats stats = lane.evaluate({samples, x.data(), labels.data()});
  Pulse::beat();
  return {stats.loss, stats.correct, 0};
}

// Every rank gets every leaf's sums.
void gather(Collective& collective, std::vector<LeafSums>& leaves) {
  auto part_of = [&](int rank) {
    const LeafRange range = leaves_of_rank(static_cast<std::int64_t>(leaves.size()), rank, collective.size());
    return std::as_writable_bytes(std::span(leaves).subspan(range.begin, range.end - range.begin));
  };
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (int peer = 0; peer < collective.size(); ++peer) {
    if (peer == collective.rank()) continue;
    sends.push_back({peer, kTagLeaves, part_of(collective.rank())});
    receives.push_back({peer, kTagLeaves, part_of(peer)});
  }
  const Pulse::WaitsForPeers alive;
  collective.start(sends, receives)->wait();
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
  TreeSum(blocks, count).run(inputs, total);
  return {total[0], total[1], total[2]};
}

}  // namespace

std::optional<Evaluation> evaluate(const Dataset& data, int micro_batch_size,
                                   std::span<const float> parameters, Collective& collective, LaneTeam& lanes,
                                   const std::function<bool()>& stop) {
  std::vector<LeafSums> leaves((data.size() + micro_batch_size - 1) / micro_batch_size);
  const LeafRange own =
      leaves_of_rank(static_cast<std::int64_t>(leaves.size()), collective.rank(), collective.size());
  std::atomic<std::int64_t> next{own.begin};
  lanes.run([&](int, Lane& lane) {
    std::vector<float> x(micro_batch_size * data.shape().size());
    std::vector<std::int32_t> labels(micro_batch_size);
    lane.load_parameters(parameters);
    for (std::int64_t leaf; (leaf = next.fetch_add(1)) < own.end;) {
      leaves[leaf] = stop() ? LeafSums{0, 0, 1} : run_leaf(lane, data, leaf, micro_batch_size, x, labels);
    }
  });
  gather(collective, leaves);
  const LeafSums total = tree_total(leaves);
  if (total.abandoned > 0) return std::nullopt;
  const auto samples = static_cast<double>(data.size());
  return Evaluation{mean(total.loss, samples), total.correct / samples};
}

}  // namespace dtrun::worker
