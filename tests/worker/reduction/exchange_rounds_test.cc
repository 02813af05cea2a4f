#include "worker/reduction/exchange_rounds.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/reduction/plain_sum.h"

namespace dtrun::worker {
namespace {

constexpr std::size_t kSize = 171;
const std::vector<VectorRange> kBuckets{{71, 171}, {9, 71}, {1, 9}, {0, 1}};

struct Shape {
  std::int64_t leaves;
  int world, ranks_of_host;
  std::size_t limit;  // bytes that go directly
};

template <typename Check>
void for_all_shapes(const Check& check) {
  for (int world = 1; world <= 12; ++world) {
    for (int of_host = 0; of_host <= world; ++of_host) {
      if (of_host > 0 && world % of_host != 0) continue;
      for (const std::int64_t leaves : {1, 2, 3, 5, 8, 13, 16, 31, 64, 100}) {
        for (const std::size_t limit : {std::size_t{0}, std::size_t{1000}}) {
          CAPTURE(world);
          CAPTURE(of_host);
          CAPTURE(leaves);
          CAPTURE(limit);
          check(Shape{leaves, world, of_host, limit});
        }
      }
    }
  }
}

std::vector<ExchangeRounds> plans_of(const Shape& shape) {
  std::vector<ExchangeRounds> plans;
  for (int rank = 0; rank < shape.world; ++rank)
    plans.push_back(plan_rounds(shape.leaves, rank, shape.world, shape.ranks_of_host, kBuckets, shape.limit));
  return plans;
}

// One rank in memory. Vectors hold NaN wherever nothing was put.
struct MemoryRank {
  std::vector<Vector> partials;  // of its own blocks
  Vector inbox, sum = Vector(kSize, NAN);

  std::span<float> at(const Piece& piece) {
    Vector& vector = piece.kind == Piece::kPartial ? partials.at(piece.block)
                     : piece.kind == Piece::kInbox ? inbox
                                                   : sum;
    REQUIRE(piece.range.begin < piece.range.end);
    REQUIRE(piece.range.end <= vector.size());
    return std::span(vector).subspan(piece.range.begin, piece.range.size());
  }
};

void exchange(std::vector<MemoryRank>& ranks, const std::vector<ExchangeRounds>& plans, std::size_t group) {
  std::map<std::pair<int, int>, std::vector<Vector>> messages;  // [from, to]
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, round] : plans[rank].rounds_of(group))
      for (const Move& move : round->out) {
        const std::span<float> values = ranks[rank].at(move.piece);
        messages[{rank, move.peer}].push_back({values.begin(), values.end()});
      }
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, round] : plans[rank].rounds_of(group))
      for (const Move& move : round->in) {
        std::vector<Vector>& waiting = messages[{move.peer, rank}];
        REQUIRE_FALSE(waiting.empty());
        const std::span<float> to = ranks[rank].at(move.piece);
        REQUIRE(to.size() == waiting.front().size());
        std::ranges::copy(waiting.front(), to.begin());
        waiting.erase(waiting.begin());
      }
  for (const auto& [ends, waiting] : messages) REQUIRE(waiting.empty());
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, round] : plans[rank].rounds_of(group))
      for (const PieceSum& sum : round->sums) {
        std::vector<const float*> inputs;
        for (const Piece& piece : sum.inputs) {
          REQUIRE(piece.range.size() == sum.out.range.size());
          inputs.push_back(ranks[rank].at(piece).data());
        }
        const Vector total = carry_out(sum.sum, inputs, sum.out.range.size());
        std::ranges::copy(total, ranks[rank].at(sum.out).begin());
      }
}

TEST_CASE("every rank has the tree's total, to the last bit, however ranks lie on hosts") {
  std::mt19937 random(5);
  for_all_shapes([&](const Shape& shape) {
    const std::vector<Vector> leaves = random_leaves(random, static_cast<int>(shape.leaves), kSize);
    const Vector right =
        recursive_sum(leaves, 0, std::size_t{1} << static_cast<unsigned>(tree_height(shape.leaves)));
    const std::vector<ExchangeRounds> plans = plans_of(shape);
    std::vector<MemoryRank> ranks(plans.size());
    for (int rank = 0; rank < shape.world; ++rank) {
      const LeafRange own = leaves_of_rank(shape.leaves, rank, shape.world);
      for (const Block& block : blocks_of(own.begin, own.end, shape.leaves))
        ranks[rank].partials.push_back(recursive_sum(leaves, static_cast<std::size_t>(block.begin),
                                                     std::size_t{1} << static_cast<unsigned>(block.level)));
      REQUIRE(plans[rank].own_blocks == ranks[rank].partials.size());
    }
    for (int rank = 0; rank < shape.world; ++rank) ranks[rank].inbox.assign(plans[rank].inbox, NAN);
    for (std::size_t group = 0; group < plans[0].groups(); ++group) exchange(ranks, plans, group);
    for (const MemoryRank& rank : ranks) REQUIRE(same_bits(rank.sum, right));
  });
}

bool overlap(const Piece& a, const Piece& b) {
  return a.kind == b.kind && a.block == b.block && a.range.begin < b.range.end && b.range.begin < a.range.end;
}

TEST_CASE("nothing is sent while it is received, and no two things are put in one place") {
  for_all_shapes([](const Shape& shape) {
    for (const ExchangeRounds& plan : plans_of(shape)) {
      for (std::size_t group = 0; group < plan.groups(); ++group) {
        ExchangeRound all;
        for (const auto& [bucket, round] : plan.rounds_of(group)) {
          all.in.insert(all.in.end(), round->in.begin(), round->in.end());
          all.out.insert(all.out.end(), round->out.begin(), round->out.end());
          all.sums.insert(all.sums.end(), round->sums.begin(), round->sums.end());
        }
        for (std::size_t i = 0; i < all.in.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) REQUIRE_FALSE(overlap(all.in[i].piece, all.in[j].piece));
          for (const Move& out : all.out) REQUIRE_FALSE(overlap(all.in[i].piece, out.piece));
          REQUIRE(all.in[i].piece.kind != Piece::kPartial);
        }
        for (const PieceSum& sum : all.sums)
          for (const PieceSum& other : all.sums)
            for (const Piece& input : other.inputs) REQUIRE_FALSE(overlap(sum.out, input));
      }
    }
  });
}

TEST_CASE(
    "each round is in one group, behind the bucket's earlier ones, and all ranks have the same groups") {
  for_all_shapes([](const Shape& shape) {
    const std::vector<ExchangeRounds> plans = plans_of(shape);
    std::vector<std::size_t> done(kBuckets.size());  // rounds
    for (std::size_t group = 0; group < plans[0].groups(); ++group) {
      for (const auto& [bucket, round] : plans[0].rounds_of(group)) {
        REQUIRE(bucket <= group);  // it is ready by then
        REQUIRE(round == &plans[0].buckets[bucket].at(done[bucket]++));
      }
    }
    for (const ExchangeRounds& plan : plans) {
      REQUIRE(plan.groups() == plans[0].groups());
      for (std::size_t b = 0; b < kBuckets.size(); ++b) REQUIRE(plan.buckets[b].size() == done[b]);
    }
  });
}

// Floats that ranks of one host send to others, of one bucket.
std::size_t leaving(const ExchangeRounds& plan, int rank, int ranks_of_host, std::size_t bucket) {
  std::size_t floats = 0;
  for (const ExchangeRound& round : plan.buckets[bucket])
    for (const Move& move : round.out)
      if (move.peer / ranks_of_host != rank / ranks_of_host) floats += move.piece.range.size();
  return floats;
}

TEST_CASE("in two levels each network card carries what a ring would, and not as much per rank of the host") {
  constexpr std::size_t kFloats = 1 << 20;
  const std::vector<VectorRange> bucket{{0, kFloats}};
  constexpr int kOfHost = 8;
  for (const int hosts : {2, 4, 8}) {
    CAPTURE(hosts);
    const int world = hosts * kOfHost;
    const std::size_t slice = kFloats / kOfHost;
    std::size_t two_levels = 0, flat = 0;
    for (int rank = 0; rank < world; ++rank) {
      two_levels = std::max(two_levels,
                            leaving(plan_rounds(world, rank, world, kOfHost, bucket, 0), rank, kOfHost, 0));
      flat = std::max(flat, leaving(plan_rounds(world, rank, world, 0, bucket, 0), rank, kOfHost, 0));
    }
    // A ring of one rank of each host moves 2 (H - 1) / H of its slice.
    CHECK(two_levels == 2 * slice * (static_cast<std::size_t>(hosts) - 1) / static_cast<std::size_t>(hosts));
    CHECK(flat >= 4 * two_levels);
  }
}

TEST_CASE("ranks of each host are counted where all hosts are alike") {
  using Hosts = std::vector<std::string>;
  CHECK(ranks_of_each_host(Hosts{"a"}) == 1);
  CHECK(ranks_of_each_host(Hosts{"a", "a", "b", "b"}) == 2);
  CHECK(ranks_of_each_host(Hosts{"a", "a", "a", "a"}) == 4);
  CHECK(ranks_of_each_host(Hosts{"a", "b", "c"}) == 1);
  CHECK(ranks_of_each_host(Hosts{"a", "a", "b"}) == 0);
  CHECK(ranks_of_each_host(Hosts{"a", "b", "b", "a"}) == 0);
  CHECK(ranks_of_each_host(Hosts{"a", "a", "b", "c"}) == 0);
  CHECK(ranks_of_each_host(Hosts{"a", "b", "a", "b"}) == 0);
  CHECK(ranks_of_each_host(Hosts{"a", "a", "b", "b", "a", "a"}) == 0);
  CHECK(ranks_of_each_host(Hosts{}) == 0);
}

}  // namespace
}  // namespace dtrun::worker
