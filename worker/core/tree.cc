#include "worker/core/tree.h"

#include <algorithm>
#include <utility>

namespace dtrun::worker {

LeafRange leaves_of_rank(std::int64_t leaves, int rank, int world) {
  return {leaves * rank / world, leaves * (rank + 1) / world};
}

int tree_height(std::int64_t leaves) {
  int height = 0;
  while ((std::int64_t{1} << height) < leaves) ++height;
  return height;
}

bool within(const Block& block, std::int64_t begin, std::int64_t end, std::int64_t leaves) {
  return block.begin >= begin && std::min(block.begin + (std::int64_t{1} << block.level), leaves) <= end;
}

std::vector<Block> blocks_of(std::int64_t begin, std::int64_t end, std::int64_t leaves) {
  std::vector<Block> blocks;
  const int height = tree_height(leaves);
  for (std::int64_t at = begin; at < end;) {
    Block block{at, 0};
    while (block.level < height && at % (std::int64_t{2} << block.level) == 0 &&
           within({at, block.level + 1}, begin, end, leaves)) {
      ++block.level;
    }
    blocks.push_back(block);
    at += std::int64_t{1} << block.level;
  }
  return blocks;
}

namespace {

class SumPlanner {
 public:
  SumPlanner(std::span<const Block> blocks, std::int64_t leaves) : blocks_(blocks), leaves_(leaves) {
    sum_.inputs = static_cast<int>(blocks.size());
  }

  TreeSum run(const Block& node) {
    add_up(node, 0);
    return std::move(sum_);
  }

 private:
  // Emits the additions of `node` in post-order and returns the operand that holds its sum: an input, or
  // temporary number `depth`. While the right child is computed the left one's sum waits in temporary
  // `depth`, so there are as many temporaries as the tree is deep.
  int add_up(const Block& node, int depth) {
    if (blocks_[next_] == node) return next_++;
    const int level = node.level - 1;
    const int left = add_up({node.begin, level}, depth);
    const std::int64_t middle = node.begin + (std::int64_t{1} << level);
    if (middle >= leaves_) return left;
    const int right = add_up({middle, level}, depth + 1);
    const int result = sum_.inputs + depth;
    sum_.temporaries = std::max(sum_.temporaries, depth + 1);
    sum_.additions.push_back({.left = left, .right = right, .result = result});
    return result;
  }

  const std::span<const Block> blocks_;
  const std::int64_t leaves_;
  int next_ = 0;  // the first block not used yet
  TreeSum sum_;
};

}  // namespace

TreeSum plan_sum(std::span<const Block> blocks, std::int64_t leaves) {
  return plan_sum_of({0, tree_height(leaves)}, blocks, leaves);
}

TreeSum plan_sum_of(const Block& node, std::span<const Block> blocks, std::int64_t leaves) {
  return SumPlanner(blocks, leaves).run(node);
}

}  // namespace dtrun::worker
