#include "worker/core/tree.h"

#include <algorithm>
#include <cstring>

namespace dtrun::worker {

namespace {

// Floats that are summed through the whole tree before the next ones: temporaries stay in the L1 cache.
constexpr std::size_t kChunk = 1024;

void add(const float* left, const float* right, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

}  // namespace

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

TreeSum::TreeSum(std::span<const Block> blocks, std::int64_t leaves)
    : inputs_(static_cast<int>(blocks.size())) {
  int next = 0;
  plan({0, tree_height(leaves)}, blocks, leaves, 0, &next);
}

// Emits the additions of `node` in post-order and returns the operand that holds its sum: an input, or
// temporary number `depth`. `next` is the first block not used yet. While the right child is computed the
// left one's sum waits in temporary `depth`, so there are as many temporaries as the tree is deep.
int TreeSum::plan(const Block& node, std::span<const Block> blocks, std::int64_t leaves, int depth,
                  int* next) {
  if (blocks[*next] == node) return (*next)++;
  const int level = node.level - 1;
  const int left = plan({node.begin, level}, blocks, leaves, depth, next);
  const std::int64_t middle = node.begin + (std::int64_t{1} << level);
  if (middle >= leaves) return left;
  const int right = plan({middle, level}, blocks, leaves, depth + 1, next);
  const int result = inputs_ + depth;
  temporaries_ = std::max(temporaries_, depth + 1);
  additions_.push_back({.left = left, .right = right, .result = result});
  return result;
}

void TreeSum::run(std::span<const float* const> inputs, std::span<float> out) const {
  if (additions_.empty()) {
    std::memcpy(out.data(), inputs[0], out.size_bytes());
    return;
  }
  std::vector<float> scratch(temporaries_ * kChunk);
  for (std::size_t at = 0; at < out.size(); at += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - at);
    auto operand = [&](int index) {
      return index < inputs_ ? inputs[index] + at : scratch.data() + (index - inputs_) * kChunk;
    };
    for (const Addition& a : additions_) {
      float* result =
          &a == &additions_.back() ? out.data() + at : scratch.data() + (a.result - inputs_) * kChunk;
      add(operand(a.left), operand(a.right), result, count);
    }
  }
}

void add_right(std::span<float> left, std::span<const float> right) {
  add(left.data(), right.data(), left.data(), left.size());
}

}  // namespace dtrun::worker
