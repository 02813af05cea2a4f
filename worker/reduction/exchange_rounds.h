// The exchange of a bucket as rounds, for a device that moves and adds vectors by enqueued work: in each
// round all ranks send and receive as one group, then add up. Pure: collective/device_exchange.h carries it
// out.
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

// A rank's part in one step.
struct ExchangeRounds {
  std::size_t own_blocks = 0;
  std::size_t inbox = 0;  // floats, for one bucket at a time
  std::vector<std::vector<ExchangeRound>> buckets;
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
