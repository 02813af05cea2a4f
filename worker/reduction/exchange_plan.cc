#include "worker/reduction/exchange_plan.h"

#include <utility>

namespace dtrun::worker {

namespace {

VectorRange slice_of_rank(const VectorRange& bucket, int rank, int world) {
  return {bucket.begin + bucket.size() * rank / world, bucket.begin + bucket.size() * (rank + 1) / world};
}

// first_block[r] .. first_block[r + 1] - 1: the blocks of rank r among those of all ranks.
BucketPlan plan_bucket(const VectorRange& bucket, bool direct, int rank,
                       std::span<const std::size_t> first_block) {
  const int world = static_cast<int>(first_block.size()) - 1;
  const auto part_of = [&](int of) { return direct ? bucket : slice_of_rank(bucket, of, world); };
  BucketPlan plan;
  plan.direct = direct;
  plan.mine = part_of(rank);
  const std::size_t own_blocks = first_block[rank + 1] - first_block[rank];
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const VectorRange theirs = part_of(peer);
    const std::size_t peer_blocks = first_block[peer + 1] - first_block[peer];
    for (std::size_t i = 0; i < peer_blocks; ++i)
      plan.partials_in.push_back(
          {.peer = peer, .block = i, .input = first_block[peer] + i, .range = plan.mine});
    for (std::size_t i = 0; i < own_blocks; ++i)
      plan.partials_out.push_back(
          {.peer = peer, .block = i, .input = first_block[rank] + i, .range = theirs});
    if (direct) continue;
    plan.slices_in.push_back({.peer = peer, .range = theirs});
    plan.slices_out.push_back({.peer = peer, .range = plan.mine});
  }
  return plan;
}

}  // namespace

bool goes_directly(const VectorRange& bucket, int world, std::size_t direct_bytes) {
  return world <= 2 || bucket.size() * sizeof(float) * (world - 1) <= direct_bytes;
}

ExchangePlan plan_exchange(std::int64_t leaves, int rank, int world, std::span<const VectorRange> buckets,
                           std::size_t direct_bytes) {
  std::vector<Block> blocks;
  std::vector<std::size_t> first_block{0};
  for (int each = 0; each < world; ++each) {
    const LeafRange own = leaves_of_rank(leaves, each, world);
    for (const Block& block : blocks_of(own.begin, own.end, leaves)) blocks.push_back(block);
    first_block.push_back(blocks.size());
  }
  TreeSum total = plan_sum(blocks, leaves);
  ExchangePlan plan{.blocks = std::move(blocks),
                    .first_own = first_block[rank],
                    .own_blocks = first_block[rank + 1] - first_block[rank],
                    .total = std::move(total),
                    .buckets = {}};
  for (const VectorRange& bucket : buckets)
    plan.buckets.push_back(
        plan_bucket(bucket, goes_directly(bucket, world, direct_bytes), rank, first_block));
  return plan;
}

}  // namespace dtrun::worker
