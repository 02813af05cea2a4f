// Sums over groups of a step's leaves while the step goes on: what a batch norm needs of all microbatches
// that it normalises together. A group is a node of the tree (tree.h), so each sum has the tree's order and
// the same bits for every number of ranks. A rank adds up the blocks that it can finish alone; each rank gets
// those of all ranks, and adds them up to the groups in which it has leaves. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/tree.h"

namespace dtrun::worker {

class GroupSum {
 public:
  // `group`: leaves of a group, a power of two; 0: all. The last group of a step may have fewer.
  GroupSum(std::int64_t leaves, std::int64_t group, int rank, int world);

  // Vectors in each rank's record: as many as the rank with the most blocks has.
  std::size_t record() const { return record_; }

  // The sums of this rank's blocks, into its record of vectors of `own[0].size()` values. `own`: the vectors
  // of its leaves in their order.
  void add_up(std::span<const std::span<double>> own, std::span<double> record) const;
  // Each of this rank's leaves gets its group's sum. `records`: of all ranks.
  void give_out(std::span<const double> records, std::span<const std::span<double>> own) const;

 private:
  std::vector<Block> blocks_of_rank(int rank) const;

  const std::int64_t leaves_;
  const int level_;  // of a group
  const int rank_, world_;
  const LeafRange own_;
  std::size_t record_ = 0;
};

}  // namespace dtrun::worker
