// The messages by which every rank gets the tree's total of every bucket. Pure: collective/ carries it out.
//
// Small buckets, and all buckets of two ranks, go directly: each rank sends its partial sums to all others
// and adds up the whole bucket (one round). Larger ones go by slices: each rank adds up its slice of the
// bucket and sends the result to all others (two rounds, fewer bytes). Both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/tree.h"
#include "worker/core/vector_range.h"

namespace dtrun::worker {

// The most bytes that a rank sends directly per step and bucket; above it slices are used.
inline constexpr std::size_t kDirectBytes = 256 * 1024;

// Round one: the sum over one block of the tree, within `range` of the vector.
struct PartialTransfer {
  int peer = 0;           // sender or receiver
  std::size_t block = 0;  // number among the sender's blocks
  std::size_t input = 0;  // the same block's place in ExchangePlan::blocks
  VectorRange range;      // empty where a bucket has fewer floats than there are ranks
};

// Round two: the total within `range`, which the sender added up.
struct SliceTransfer {
  int peer = 0;
  VectorRange range;
};

// A rank's part in the exchange of one bucket. Sender and receiver list the transfers from one to the other
// in the same order, by ascending block.
struct BucketPlan {
  bool direct = true;
  VectorRange mine;  // the range that this rank adds up: the bucket, or its slice of it
  std::vector<PartialTransfer> partials_in, partials_out;
  std::vector<SliceTransfer> slices_in, slices_out;  // none if direct
};

// A rank's part in the exchange of one step. Immutable: any thread may read it.
struct ExchangePlan {
  std::vector<Block> blocks;                  // those that any rank finishes alone, by ascending leaf
  std::size_t first_own = 0, own_blocks = 0;  // this rank's blocks among them
  TreeSum total;                              // over `blocks`; makes BucketPlan::mine
  std::vector<BucketPlan> buckets;
};

// True if `bucket` goes directly: with two ranks always, with more if one block's sum takes no more than
// `direct_bytes` to all peers together.
bool goes_directly(const VectorRange& bucket, int world, std::size_t direct_bytes);

// REQUIRES: leaves >= 1. The plans of all ranks fit each other if all but `rank` is the same.
ExchangePlan plan_exchange(std::int64_t leaves, int rank, int world, std::span<const VectorRange> buckets,
                           std::size_t direct_bytes);

}  // namespace dtrun::worker
