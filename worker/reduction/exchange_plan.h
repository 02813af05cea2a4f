// The messages and additions by which every rank gets the tree's total of every bucket. Pure: collective/
// carries the plan out, on hosts (tree_exchange.cc) and between devices (device_exchange.cc).
//
// A bucket goes in rounds: in each, ranks send and receive, then add up. Small buckets, and all buckets of
// two ranks, go directly: each rank sends its partial sums to all others and adds up the whole bucket (one
// round). Larger ones go by slices: each rank adds up its slice of the bucket and sends the result to all
// others (two rounds, fewer bytes). If several hosts have the same number of ranks each, larger buckets go in
// two levels (four rounds): each rank of a host adds up its slice of the bucket as far as the host's leaves
// allow, then the k-th ranks of all hosts finish slice k among themselves, each over its own network card.
// The additions are always those of the tree, so the bits are the same.
//
// Rounds are in groups: a bucket's later rounds go along with the first ones of the buckets behind it. A
// device begins a group as one operation, since that costs a thread about 0.1 ms, however little it moves.
// The rounds of a group must follow from the plan alone, never from what happens to be ready: a group of
// NCCL's ends as a whole, so that ranks with other groups would wait for each other (its user guide,
// "Point-to-point communication"). Within a group the moves from one rank to another keep their order (same
// place).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/core/tree.h"
#include "worker/core/vector_range.h"

namespace dtrun::worker {

// The most bytes that a rank sends directly per step and bucket; above it slices are used.
inline constexpr std::size_t kDirectBytes = 256 * 1024;

// A part of one of the vectors that a rank works on.
struct Piece {
  enum Vector : std::uint8_t {
    kPartial,  // the sum over this rank's number-th block
    kInbox,    // the exchange's own memory: the bucket's number-th slot, or a part of it
    kSum,      // the whole job's sum
  };
  Vector vector = kSum;
  std::size_t number = 0;
  VectorRange range;  // of the vector; never empty
  bool operator==(const Piece&) const = default;
};

struct OutMove {
  int peer = 0;  // receiver
  Piece piece;
};
struct InMove {
  int peer = 0;  // sender
  Piece piece;   // the destination: a part of kSum, or a whole slot, which no other move or sum fills
  std::optional<Piece> from;  // the sender's piece, for a receiver that can read it there; null between hosts
};

struct PieceSum {
  TreeSum sum;
  std::vector<Piece> inputs;  // as long as `out`
  Piece out;
};

// Sender and receiver list the moves from one to the other in the same order.
struct ExchangeRound {
  std::vector<OutMove> out;
  std::vector<InMove> in;
  std::vector<PieceSum> sums;  // done after these moves
};

struct BucketPlan {
  std::vector<ExchangeRound> rounds;  // at least one
  std::vector<VectorRange> slots;     // their ranges of the inbox
};

struct RoundOfBucket {
  std::size_t bucket = 0, number = 0;  // of the round
  const ExchangeRound* round = nullptr;
};

// A rank's part in the exchange of one step. Immutable: any thread may read it.
struct ExchangePlan {
  std::size_t own_blocks = 0;  // blocks that this rank finishes alone
  std::size_t inbox = 0;       // floats, if groups follow each other: buckets use the same ones by turns
  std::vector<BucketPlan> buckets;

  // Round r of bucket b is in group b + r. All ranks have the same number of groups.
  std::size_t groups() const;
  // The rounds of a group, by ascending bucket, none behind bucket `group`: first all their moves, then all
  // their sums.
  std::vector<RoundOfBucket> rounds_of(std::size_t group) const;
};

// The number of ranks per host, if it is the same for all hosts and ranks count through one host after the
// other; else 0. hosts[r]: the host of rank r.
int ranks_of_each_host(std::span<const std::string> hosts);

// True if `bucket` goes directly: with two ranks always, with more if one block's sum takes no more than
// `direct_bytes` to all peers together.
bool goes_directly(const VectorRange& bucket, int world, std::size_t direct_bytes);

// REQUIRES: leaves >= 1; world is a multiple of ranks_of_host >= 1, where ranks r with the same
// r / ranks_of_host share a host, or ranks_of_host is 0: one level for all ranks. The plans of all ranks fit
// each other if all but `rank` is the same.
ExchangePlan plan_exchange(std::int64_t leaves, int rank, int world, int ranks_of_host,
                           std::span<const VectorRange> buckets, std::size_t direct_bytes);

}  // namespace dtrun::worker
