// The fixed binary tree in which a step's leaves (microbatches) are summed: nodes are aligned power-of-two
// blocks of leaf numbers, an absent leaf (number >= `leaves`) adds nothing. Says which leaves a rank owns,
// which blocks it can finish alone, and how finished blocks make the total. Pure:
// accumulator.h decides which lane computes a block, and when.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::worker {

// Leaves begin .. end - 1.
struct LeafRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const LeafRange&) const = default;
};

// What rank `rank` of `world` owns: floor(rank*leaves/world) .. floor((rank+1)*leaves/world) - 1.
LeafRange leaves_of_rank(std::int64_t leaves, int rank, int world);

// A node of the tree: leaves begin .. begin + 2^level - 1, of which those >= `leaves` are absent.
// begin is a multiple of 2^level.
struct Block {
  std::int64_t begin = 0;
  int level = 0;
  bool operator==(const Block&) const = default;
};

// Level of the root: the smallest h with 2^h >= leaves. REQUIRES: leaves >= 1.
int tree_height(std::int64_t leaves);

// True if all present leaves of `block` lie in [begin, end).
bool within(const Block& block, std::int64_t begin, std::int64_t end, std::int64_t leaves);

// The largest blocks that the owner of leaves [begin, end) can finish alone, by ascending leaf; they tile the
// range.
std::vector<Block> blocks_of(std::int64_t begin, std::int64_t end, std::int64_t leaves);

// The upper part of the tree as a list of additions over finished blocks. Immutable: any thread may run it.
class TreeSum {
 public:
  // REQUIRES: `blocks` tile 0..leaves-1 in ascending order, each a node of the tree.
  TreeSum(std::span<const Block> blocks, std::int64_t leaves);

  // out[i] = the tree's sum over inputs[0..blocks)[i]. Inputs are not changed and must not overlap out.
  void run(std::span<const float* const> inputs, std::span<float> out) const;

 private:
  // Operands below inputs_ are inputs, the others temporaries.
  struct Addition {
    int left, right, result;
  };
  int plan(const Block& node, std::span<const Block> blocks, std::int64_t leaves, int depth, int* next);

  int inputs_ = 0;
  int temporaries_ = 0;
  std::vector<Addition> additions_;  // the last one makes the total
};

// left[i] = left[i] + right[i]; operands in this order, so that even NaN bits do not depend on who adds.
void add_right(std::span<float> left, std::span<const float> right);

}  // namespace dtrun::worker
