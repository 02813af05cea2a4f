#include "worker/reduction/exchange_plan.h"

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

namespace dtrun::worker::exchange_plan_test {
namespace {

constexpr std::size_t kSize = 171;  // floats of the vector
// As in training, the last floats come first. Large ones, one of a float per rank or less, one of a float.
const std::vector<VectorRange> kBuckets{{71, 171}, {9, 71}, {1, 9}, {0, 1}};

const std::vector<std::size_t> kLimits{0, 1000, std::numeric_limits<std::size_t>::max()};

struct Shape {
  std::int64_t leaves;
  int world, ranks_of_host;
  std::size_t limit;  // bytes that go directly
};

template <typename Check>
void for_all_shapes(const Check& check) {
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17}) {
    for (int of_host = 0; of_host <= world; ++of_host) {
      if (of_host > 0 && world % of_host != 0) continue;
      for (const std::int64_t leaves : {1, 2, 3, 5, 8, 13, 17, 64}) {
        // All by slices from three ranks on; the larger ones from some number of ranks on; none.
        for (const std::size_t limit : kLimits) {
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

std::vector<ExchangePlan> plans_of(const Shape& shape) {
  std::vector<ExchangePlan> plans;
  for (int rank = 0; rank < shape.world; ++rank)
    plans.push_back(
        plan_exchange(shape.leaves, rank, shape.world, shape.ranks_of_host, kBuckets, shape.limit));
  return plans;
}

// One rank in memory. Vectors hold NaN wherever nothing was put.
struct MemoryRank {
  std::vector<Vector> partials;  // of its own blocks
  Vector inbox, sum = Vector(kSize, NAN);

  std::span<float> at(const Piece& piece) {
    Vector& vector = piece.vector == Piece::kPartial ? partials.at(piece.number)
                     : piece.vector == Piece::kInbox ? inbox
                                                     : sum;
    REQUIRE(piece.range.begin < piece.range.end);
    REQUIRE(piece.range.end <= vector.size());
    return std::span(vector).subspan(piece.range.begin, piece.range.size());
  }
};

void exchange(std::vector<MemoryRank>& ranks, const std::vector<ExchangePlan>& plans, std::size_t group) {
  struct Message {
    Piece from;
    Vector values;
  };
  std::map<std::pair<int, int>, std::vector<Message>> messages;  // [from, to]
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, number, round] : plans[rank].rounds_of(group))
      for (const OutMove& move : round->out) {
        const std::span<float> values = ranks[rank].at(move.piece);
        messages[{rank, move.peer}].push_back({move.piece, {values.begin(), values.end()}});
      }
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, number, round] : plans[rank].rounds_of(group))
      for (const InMove& move : round->in) {
        std::vector<Message>& waiting = messages[{move.peer, rank}];
        REQUIRE_FALSE(waiting.empty());
        const auto& [from, values] = waiting.front();
        const std::span<float> to = ranks[rank].at(move.piece);
        REQUIRE(to.size() == values.size());
        if (move.from) REQUIRE(*move.from == from);
        std::ranges::copy(values, to.begin());
        waiting.erase(waiting.begin());
      }
  for (const auto& [ends, waiting] : messages) REQUIRE(waiting.empty());
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    for (const auto& [bucket, number, round] : plans[rank].rounds_of(group))
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
    const std::vector<ExchangePlan> plans = plans_of(shape);
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
  const bool one_vector = a.vector == b.vector && (a.vector != Piece::kPartial || a.number == b.number);
  return one_vector && a.range.begin < b.range.end && b.range.begin < a.range.end;
}

TEST_CASE("nothing is sent while it is received, and no two things are put in one place") {
  for_all_shapes([](const Shape& shape) {
    for (const ExchangePlan& plan : plans_of(shape)) {
      for (std::size_t group = 0; group < plan.groups(); ++group) {
        ExchangeRound all;
        for (const auto& [bucket, number, round] : plan.rounds_of(group)) {
          all.in.insert(all.in.end(), round->in.begin(), round->in.end());
          all.out.insert(all.out.end(), round->out.begin(), round->out.end());
          all.sums.insert(all.sums.end(), round->sums.begin(), round->sums.end());
        }
        bool clash = false;
        for (std::size_t i = 0; i < all.in.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) clash |= overlap(all.in[i].piece, all.in[j].piece);
          for (const OutMove& out : all.out) clash |= overlap(all.in[i].piece, out.piece);
          clash |= all.in[i].piece.vector == Piece::kPartial;
        }
        for (const PieceSum& sum : all.sums)
          for (const PieceSum& other : all.sums)
            for (const Piece& input : other.inputs) clash |= overlap(sum.out, input);
        REQUIRE_FALSE(clash);
      }
    }
  });
}

TEST_CASE(
    "each round is in one group, behind the bucket's earlier ones, and all ranks have the same groups") {
  for_all_shapes([](const Shape& shape) {
    const std::vector<ExchangePlan> plans = plans_of(shape);
    std::vector<std::size_t> done(kBuckets.size());  // rounds
    for (std::size_t group = 0; group < plans[0].groups(); ++group) {
      for (const auto& [bucket, number, round] : plans[0].rounds_of(group)) {
        REQUIRE(bucket <= group);  // it is ready by then
        REQUIRE(round == &plans[0].buckets[bucket].rounds.at(done[bucket]++));
      }
    }
    for (const ExchangePlan& plan : plans) {
      REQUIRE(plan.groups() == plans[0].groups());
      for (std::size_t b = 0; b < kBuckets.size(); ++b) REQUIRE(plan.buckets[b].rounds.size() == done[b]);
    }
  });
}

// The part that a rank adds up of a bucket with one level.
VectorRange mine(const BucketPlan& bucket) {
  const std::vector<PieceSum>& sums = bucket.rounds[0].sums;
  return sums.empty() ? VectorRange{} : sums.at(0).out.range;
}

TEST_CASE("in one level all add up the whole of a bucket that goes directly, of others slices that tile it") {
  for_all_shapes([](const Shape& shape) {
    if (shape.ranks_of_host > 1) return;
    const std::vector<ExchangePlan> plans = plans_of(shape);
    for (std::size_t b = 0; b < kBuckets.size(); ++b) {
      const bool direct = goes_directly(kBuckets[b], shape.world, shape.limit);
      const std::size_t size = kBuckets[b].size(), world = plans.size();
      std::size_t next = kBuckets[b].begin;
      for (const ExchangePlan& plan : plans) {
        const VectorRange range = mine(plan.buckets[b]);
        REQUIRE(plan.buckets[b].rounds.size() == (direct ? 1 : 2));
        if (direct) REQUIRE(range == kBuckets[b]);
        if (direct || range.size() == 0) continue;
        REQUIRE(range.begin == next);
        REQUIRE(range.size() >= size / world);
        REQUIRE(range.size() <= (size + world - 1) / world);
        next = range.end;
      }
      if (!direct) REQUIRE(next == kBuckets[b].end);
    }
  });
}

TEST_CASE("a bucket goes directly up to the limit for all peers together, and always between two ranks") {
  for (const int world : {3, 4, 5, 17}) {
    const std::size_t bytes = 100 * sizeof(float) * (world - 1);
    CHECK(goes_directly({71, 171}, world, bytes));
    CHECK_FALSE(goes_directly({71, 172}, world, bytes));
    CHECK_FALSE(goes_directly({71, 171}, world, bytes - 1));
  }
  for (const int world : {1, 2}) CHECK(goes_directly({0, 1000000}, world, 0));
}

TEST_CASE("each slot is filled once, by a move or a sum, and read only then") {
  for_all_shapes([](const Shape& shape) {
    for (const ExchangePlan& plan : plans_of(shape)) {
      for (const BucketPlan& bucket : plan.buckets) {
        std::vector<bool> filled(bucket.slots.size());
        const auto fill = [&](const Piece& piece) {
          if (piece.vector != Piece::kInbox) return;
          REQUIRE(piece.range == bucket.slots.at(piece.number));
          REQUIRE_FALSE(filled[piece.number]);
          filled[piece.number] = true;
        };
        const auto read = [&](const Piece& piece) {
          if (piece.vector != Piece::kInbox) return;
          const VectorRange& slot = bucket.slots.at(piece.number);
          REQUIRE(piece.range.begin >= slot.begin);
          REQUIRE(piece.range.end <= slot.end);
          REQUIRE(filled[piece.number]);
        };
        for (const ExchangeRound& round : bucket.rounds) {
          for (const OutMove& move : round.out) read(move.piece);
          for (const InMove& move : round.in) fill(move.piece);
          for (const PieceSum& sum : round.sums) {
            for (const Piece& input : sum.inputs) read(input);
            fill(sum.out);
          }
        }
      }
    }
  });
}

TEST_CASE("within a host it is known where the sender has it, and one piece of the total is given to all") {
  for_all_shapes([](const Shape& shape) {
    const int of_host = shape.ranks_of_host > 0 ? shape.ranks_of_host : shape.world;
    const std::vector<ExchangePlan> plans = plans_of(shape);
    for (int rank = 0; rank < shape.world; ++rank) {
      for (const BucketPlan& bucket : plans[rank].buckets) {
        std::vector<Piece> totals;
        for (const ExchangeRound& round : bucket.rounds) {
          for (const InMove& move : round.in)
            if (move.peer / of_host == rank / of_host) REQUIRE(move.from.has_value());
          for (const OutMove& move : round.out)
            if (move.peer / of_host == rank / of_host && move.piece.vector == Piece::kSum)
              totals.push_back(move.piece);
        }
        for (const Piece& total : totals) REQUIRE(total == totals.front());
      }
    }
  });
}

std::string text(const ExchangeRound& round) {
  const auto text_of = [](const Piece& piece) {
    const std::string vector = piece.vector == Piece::kPartial ? "block " + std::to_string(piece.number)
                               : piece.vector == Piece::kInbox ? "slot " + std::to_string(piece.number)
                                                               : "sum";
    return vector + " " + std::to_string(piece.range.begin) + "-" + std::to_string(piece.range.end);
  };
  std::string all;
  for (const OutMove& move : round.out)
    all += "to " + std::to_string(move.peer) + ": " + text_of(move.piece) + "\n";
  for (const InMove& move : round.in)
    all += "from " + std::to_string(move.peer) + ": " + (move.from ? text_of(*move.from) : "its sum") +
           ", to " + text_of(move.piece) + "\n";
  for (const PieceSum& sum : round.sums) {
    for (const Piece& input : sum.inputs) all += text_of(input) + ", ";
    all += "make " + text_of(sum.out) + "\n";
  }
  return all;
}

TEST_CASE("rank 1 of three with five leaves: an example to read") {
  const ExchangePlan plan = plan_exchange(5, 1, 3, 0, std::vector<VectorRange>{{10, 20}}, 0);
  // Rank 0 has leaf 0, rank 1 leaves 1 and 2, which are no siblings, rank 2 leaves 3 and 4, alone at the
  // edge.
  CHECK(plan.own_blocks == 2);
  CHECK(text(plan.buckets[0].rounds.at(0)) ==
        "to 0: block 0 10-13\n"
        "to 0: block 1 10-13\n"
        "to 2: block 0 16-20\n"
        "to 2: block 1 16-20\n"
        "from 0: block 0 13-16, to slot 0 0-3\n"
        "from 2: block 0 13-16, to slot 1 3-6\n"
        "from 2: block 1 13-16, to slot 2 6-9\n"
        "slot 0 0-3, block 0 13-16, block 1 13-16, slot 1 3-6, slot 2 6-9, make sum 13-16\n");
  CHECK(text(plan.buckets[0].rounds.at(1)) ==
        "to 0: sum 13-16\n"
        "to 2: sum 13-16\n"
        "from 0: sum 10-13, to sum 10-13\n"
        "from 2: sum 16-20, to sum 16-20\n");
}

TEST_CASE("rank 1 of two hosts with two ranks each: an example of two levels to read") {
  const ExchangePlan plan = plan_exchange(4, 1, 4, 2, std::vector<VectorRange>{{0, 8}}, 0);
  const std::vector<ExchangeRound>& rounds = plan.buckets[0].rounds;
  REQUIRE(rounds.size() == 4);
  CHECK(text(rounds[0]) ==
        "to 0: block 0 0-4\n"
        "from 0: block 0 4-8, to slot 0 0-4\n"
        "slot 0 0-4, block 0 4-8, make slot 1 4-8\n");
  CHECK(text(rounds[1]) ==
        "to 3: slot 1 6-8\n"
        "from 3: its sum, to slot 2 8-10\n"
        "slot 1 4-6, slot 2 8-10, make sum 4-6\n");
  CHECK(text(rounds[2]) ==
        "to 3: sum 4-6\n"
        "from 3: sum 6-8, to sum 6-8\n");
  CHECK(text(rounds[3]) ==
        "to 0: sum 4-8\n"
        "from 0: sum 0-4, to sum 0-4\n");
}

// Floats that ranks of one host send to others, of one bucket.
std::size_t leaving(const ExchangePlan& plan, int rank, int ranks_of_host, std::size_t bucket) {
  std::size_t floats = 0;
  for (const ExchangeRound& round : plan.buckets[bucket].rounds)
    for (const OutMove& move : round.out)
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
                            leaving(plan_exchange(world, rank, world, kOfHost, bucket, 0), rank, kOfHost, 0));
      flat = std::max(flat, leaving(plan_exchange(world, rank, world, 0, bucket, 0), rank, kOfHost, 0));
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
}  // namespace dtrun::worker::exchange_plan_test
