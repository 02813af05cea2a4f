#include "worker/core/group_sum.h"

#include <algorithm>

namespace dtrun::worker {
namespace {

// The sum of `node`, of which `vectors` are the blocks.
void sum(const Block& node, std::span<const Block> blocks, std::int64_t leaves,
         std::span<const double* const> vectors, std::span<double> out) {
  const TreeSum plan = plan_sum_of(node, blocks, leaves);
  std::vector<std::vector<double>> temporaries(static_cast<std::size_t>(plan.temporaries),
                                               std::vector<double>(out.size()));
  const auto operand = [&](int number) {
    return number < plan.inputs ? vectors[number] : temporaries[number - plan.inputs].data();
  };
  const double* total = vectors[0];
  for (const Addition& addition : plan.additions) {
    const double *const left = operand(addition.left), *const right = operand(addition.right);
    std::vector<double>& result = temporaries[addition.result - plan.inputs];
    for (std::size_t i = 0; i < out.size(); ++i) result[i] = left[i] + right[i];
    total = result.data();
  }
  std::copy_n(total, out.size(), out.begin());
}

// Behind its last leaf, present or not.
std::int64_t end_of(const Block& block) { return block.begin + (std::int64_t{1} << block.level); }

}  // namespace

GroupSum::GroupSum(std::int64_t leaves, std::int64_t group, int rank, int world)
    : leaves_(leaves),
      level_(std::min(tree_height(leaves), group == 0 ? tree_height(leaves) : tree_height(group))),
      rank_(rank),
      world_(world),
      own_(leaves_of_rank(leaves, rank, world)) {
  for (int each = 0; each < world; ++each) record_ = std::max(record_, blocks_of_rank(each).size());
}

std::vector<Block> GroupSum::blocks_of_rank(int rank) const {
  const LeafRange range = leaves_of_rank(leaves_, rank, world_);
  std::vector<Block> blocks;
  for (const Block& block : blocks_of(range.begin, range.end, leaves_)) {
    const std::int64_t end = std::min(end_of(block), leaves_);
    const int level = std::min(block.level, level_);
    for (std::int64_t at = block.begin; at < end; at += std::int64_t{1} << level)
      blocks.push_back({at, level});
  }
  return blocks;
}

void GroupSum::add_up(std::span<const std::span<double>> own, std::span<double> record) const {
  for (const Block& block : blocks_of_rank(rank_)) {
    std::vector<Block> leaves;
    std::vector<const double*> vectors;
    for (std::int64_t leaf = block.begin; leaf < std::min(end_of(block), leaves_); ++leaf) {
      leaves.push_back({leaf, 0});
      vectors.push_back(own[leaf - own_.begin].data());
    }
    const std::size_t width = own[0].size();
    sum(block, leaves, leaves_, vectors, record.first(width));
    record = record.subspan(width);
  }
}

void GroupSum::give_out(std::span<const double> records, std::span<const std::span<double>> own) const {
  if (own.empty()) return;
  const std::size_t width = own[0].size();
  std::vector<Block> blocks;
  std::vector<const double*> vectors;
  for (int rank = 0; rank < world_; ++rank) {
    const double* record = records.data() + rank * record_ * width;
    for (const Block& block : blocks_of_rank(rank)) {
      blocks.push_back(block);
      vectors.push_back(record);
      record += width;
    }
  }
  const std::int64_t size = std::int64_t{1} << level_;
  for (std::int64_t leaf = own_.begin; leaf < own_.end;) {
    const Block group{leaf / size * size, level_};
    const auto first = std::ranges::lower_bound(blocks, group.begin, {}, &Block::begin);
    const auto last = std::ranges::lower_bound(blocks, end_of(group), {}, &Block::begin);
    const std::size_t at = first - blocks.begin(), count = last - first;
    const std::span<double> total = own[leaf - own_.begin];
    sum(group, std::span(blocks).subspan(at, count), leaves_, std::span(vectors).subspan(at, count), total);
    const std::int64_t end = std::min(end_of(group), own_.end);
    for (++leaf; leaf < end; ++leaf) std::ranges::copy(total, own[leaf - own_.begin].begin());
  }
}

}  // namespace dtrun::worker
