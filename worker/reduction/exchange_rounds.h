// The exchange of a bucket as rounds, for a device that moves and adds vectors by enqueued work: in each
// round all ranks send and receive, then add up. Pure: collective/device_exchange.h carries it out.
//
// A bucket's later rounds go along with the first ones of the buckets behind it, as one group: to begin one
// costs a thread about 0.1 ms, however little it moves. Which rounds share a group must follow from the plan
// alone, never from what happens to be ready: a group of NCCL's ends as a whole, so that ranks with other
// groups would wait for each other (its user guide, "Point-to-point communication"). Within a group what goes
// from one rank to another keeps its order (same place).
//
// On one host the rounds are those of exchange_plan.h. Where several hosts have as many ranks each, larger
// buckets go in two levels: each rank of a host adds up its slice of the bucket as far as the host's leaves
// allow, then the k-th ranks of all hosts finish slice k among themselves, each over its own network card.
// The additions are those of the tree in either case, so the bits are the same.
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
    kInbox,    // memory of the exchange's own
    kSum,      // the whole job's sum
  };
  Kind kind = kSum;
  std::size_t block = 0;  // of kPartial
  VectorRange range;      // never empty
  bool operator==(const Piece&) const = default;
};

struct Move {
  int peer = 0;  // to or from whom
  Piece piece;
};

struct PieceSum {
  TreeSum sum;
  std::vector<Piece> inputs;  // as long as `out`
  Piece out;
};

// What goes from one rank to another is listed in the same order by both.
struct ExchangeRound {
  std::vector<Move> out, in;
  std::vector<PieceSum> sums;  // after these moves
};

struct RoundOfBucket {
  std::size_t bucket = 0;
  const ExchangeRound* round = nullptr;
};

// A rank's part in one step.
struct ExchangeRounds {
  std::size_t own_blocks = 0;
  std::size_t inbox = 0;  // floats, for the buckets that need some at a time
  std::vector<std::vector<ExchangeRound>> buckets;

  // Round r of bucket b is in group b + r. All ranks have as many groups.
  std::size_t groups() const;
  // By ascending bucket, none behind number `group`: first all their moves, then all their sums.
  std::vector<RoundOfBucket> rounds_of(std::size_t group) const;
};

// The ranks of each host, if ranks count through one host after the other and all have as many, else 0:
// hosts[r] names that of rank r.
int ranks_of_each_host(std::span<const std::string> hosts);

// REQUIRES: leaves >= 1; world is a multiple of ranks_of_host >= 1, where ranks r with the same
// r / ranks_of_host share a host, or ranks_of_host is 0: all go alike. The rounds of all ranks fit each other
// if all but `rank` is the same.
ExchangeRounds plan_rounds(std::int64_t leaves, int rank, int world, int ranks_of_host,
                           std::span<const VectorRange> buckets, std::size_t direct_bytes);

}  // namespace dtrun::worker
