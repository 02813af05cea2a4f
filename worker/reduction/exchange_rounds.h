// The exchange of a bucket as rounds, for a device that moves and adds vectors by enqueued work: in each
// round all ranks send and receive, then add up. Pure: collective/device_exchange.h carries it out.
//
// A bucket's later rounds go along with the first ones of the buckets behind it, as one group: to begin a
// group costs a thread about 0.1 ms, however little it moves. The rounds of a group must follow from the plan
// alone, never from what happens to be ready: a group of NCCL's ends as a whole, so that ranks with other
// groups would wait for each other (its user guide, "Point-to-point communication"). Within a group the moves
// from one rank to another keep their order (same place).
//
// On one host the rounds are those of exchange_plan.h. If several hosts have the same number of ranks each,
// larger buckets go in two levels: each rank of a host adds up its slice of the bucket as far as the host's
// leaves allow, then the k-th ranks of all hosts finish slice k among themselves, each over its own network
// card. The additions are those of the tree in either case, so the bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/core/tree.h"
#include "worker/core/vector_range.h"

namespace dtrun::worker {

// A part of one of the vectors that a rank works on.
struct Piece {
  enum Kind : std::uint8_t {
    kPartial,  // the sum over this rank's block-th block
    kInbox,    // the exchange's own memory
    kSum,      // the whole job's sum
  };
  Kind kind = kSum;
  std::size_t block = 0;  // number of a kPartial
  VectorRange range;      // never empty
  bool operator==(const Piece&) const = default;
};

struct Move {
  int peer = 0;  // sender or receiver
  Piece piece;
};

struct PieceSum {
  TreeSum sum;
  std::vector<Piece> inputs;  // as long as `out`
  Piece out;
};

// Sender and receiver list the moves from one to the other in the same order.
struct ExchangeRound {
  std::vector<Move> out, in;
  std::vector<PieceSum> sums;  // done after these moves
};

struct RoundOfBucket {
  std::size_t bucket = 0;
  const ExchangeRound* round = nullptr;
};

// A rank's part in one step.
struct ExchangeRounds {
  std::size_t own_blocks = 0;
  std::size_t inbox = 0;  // floats, for the buckets that are under way at a time
  std::vector<std::vector<ExchangeRound>> buckets;

  // Round r of bucket b is in group b + r. All ranks have the same number of groups.
  std::size_t groups() const;
  // The rounds of a group, by ascending bucket, none behind bucket `group`: first all their moves, then all
  // their sums.
  std::vector<RoundOfBucket> rounds_of(std::size_t group) const;
};

// The number of ranks per host, if it is the same for all hosts and ranks count through one host after the
// other; else 0. hosts[r]: the host of rank r.
int ranks_of_each_host(std::span<const std::string> hosts);

// REQUIRES: leaves >= 1; world is a multiple of ranks_of_host >= 1, where ranks r with the same
// r / ranks_of_host share a host, or ranks_of_host is 0: one level for all ranks. The rounds of all ranks fit
// each other if all but `rank` is the same.
ExchangeRounds plan_rounds(std::int64_t leaves, int rank, int world, int ranks_of_host,
                           std::span<const VectorRange> buckets, std::size_t direct_bytes);

}  // namespace dtrun::worker
