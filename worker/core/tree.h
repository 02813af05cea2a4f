// The fixed binary tree in which a step's leaves (microbatches) are summed: nodes are aligned power-of-two
// blocks of leaf numbers, an absent leaf (number >= `leaves`) adds nothing. The functions give the leaves
// that a rank owns, the blocks that it can finish alone, and the additions that make the total of finished
// blocks. Pure: accumulator.h decides which lane computes a block, and when.
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

// The leaves that rank `rank` of `world` owns: floor(rank*leaves/world) .. floor((rank+1)*leaves/world) - 1.
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

// One addition of two vectors. Numbers below TreeSum::inputs name inputs, the others temporaries.
struct Addition {
  int left, right, result;
  bool operator==(const Addition&) const = default;
};

// The upper part of the tree as a list of additions over finished blocks, to be done in this order.
// Arithmetic::sum carries it out where the vectors are.
struct TreeSum {
  int inputs = 0;
  int temporaries = 0;
  std::vector<Addition> additions;  // the last one makes the total; none: the only input is the total
};

// REQUIRES: `blocks` tile 0..leaves-1 in ascending order, each a node of the tree. They are the inputs.
TreeSum plan_sum(std::span<const Block> blocks, std::int64_t leaves);
// The same list for one node, whose present leaves `blocks` tile.
TreeSum plan_sum_of(const Block& node, std::span<const Block> blocks, std::int64_t leaves);

}  // namespace dtrun::worker
