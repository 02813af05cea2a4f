#include "worker/reduction/exchange_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/reduction/plain_sum.h"

namespace dtrun::worker {
namespace {

constexpr std::size_t kSize = 171;  // floats of the vector
// As in training, the last floats come first. Large ones, one of a float per rank or less, one of a float.
const std::vector<VectorRange> kBuckets{{71, 171}, {9, 71}, {1, 9}, {0, 1}};
// All by slices from three ranks on; the larger ones from some number of ranks on; none.
const std::vector<std::size_t> kLimits{0, 1000, std::numeric_limits<std::size_t>::max()};

// The plans of all ranks of one step.
struct Ranks {
  Ranks(std::int64_t leaves, int world, std::size_t limit) : leaves(leaves), world(world) {
    for (int rank = 0; rank < world; ++rank) {
      plans.push_back(plan_exchange(leaves, rank, world, kBuckets, limit));
      REQUIRE(plans.back().buckets.size() == kBuckets.size());
    }
  }
  std::int64_t leaves;
  int world;
  std::vector<ExchangePlan> plans;
};

void for_all_steps(const std::function<void(const Ranks&)>& check) {
  for (int world = 1; world <= 17; ++world) {
    for (const std::int64_t leaves : {1, 2, 3, 5, 7, 8, 12, 13, 16, 17, 31, 64, 100}) {
      for (const std::size_t limit : kLimits) {
        CAPTURE(world);
        CAPTURE(leaves);
        CAPTURE(limit);
        check(Ranks(leaves, world, limit));
      }
    }
  }
}

// What both ends of a message must know alike. Messages of a bucket from one rank to another have different
// blocks.
struct Message {
  std::size_t block = 0, input = 0;
  VectorRange range;
  bool operator==(const Message&) const = default;
};
Message message_of(const PartialTransfer& partial) { return {partial.block, partial.input, partial.range}; }
Message message_of(const SliceTransfer& slice) { return {0, 0, slice.range}; }

// One round of one bucket: `out` and `in` are a rank's lists of it.
template <typename Transfer>
void check_both_ends(const Ranks& ranks, std::size_t bucket, std::vector<Transfer> BucketPlan::*out,
                     std::vector<Transfer> BucketPlan::*in) {
  const int world = ranks.world;
  std::vector<std::vector<Message>> sent(world * world), received(world * world);  // [from][to]
  for (int rank = 0; rank < world; ++rank) {
    const BucketPlan& plan = ranks.plans[rank].buckets[bucket];
    for (const Transfer& to : plan.*out) sent[rank * world + to.peer].push_back(message_of(to));
    for (const Transfer& from : plan.*in) received[from.peer * world + rank].push_back(message_of(from));
  }
  REQUIRE(sent == received);
  for (int rank = 0; rank < world; ++rank) REQUIRE(sent[rank * world + rank].empty());
  for (const std::vector<Message>& messages : sent) {
    for (std::size_t i = 1; i < messages.size(); ++i) REQUIRE(messages[i - 1].block < messages[i].block);
  }
}

TEST_CASE("what one rank sends is what another one expects, in the same order, in both rounds") {
  for_all_steps([](const Ranks& ranks) {
    for (std::size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
      check_both_ends(ranks, bucket, &BucketPlan::partials_out, &BucketPlan::partials_in);
      check_both_ends(ranks, bucket, &BucketPlan::slices_out, &BucketPlan::slices_in);
    }
  });
}

TEST_CASE("every rank agrees what goes directly; slices tile a bucket, even to within a float") {
  for_all_steps([](const Ranks& ranks) {
    for (std::size_t b = 0; b < kBuckets.size(); ++b) {
      const bool direct = ranks.plans[0].buckets[b].direct;
      std::size_t next = kBuckets[b].begin;
      for (const ExchangePlan& plan : ranks.plans) {
        const BucketPlan& bucket = plan.buckets[b];
        REQUIRE(bucket.direct == direct);
        if (direct) {
          REQUIRE(bucket.mine == kBuckets[b]);
          continue;
        }
        REQUIRE(bucket.mine.begin == next);
        REQUIRE(bucket.mine.size() >= kBuckets[b].size() / ranks.world);
        REQUIRE(bucket.mine.size() <= (kBuckets[b].size() + ranks.world - 1) / ranks.world);
        next = bucket.mine.end;
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

TEST_CASE("every block of every rank enters each rank's sum exactly once, at its place in the tree") {
  for_all_steps([](const Ranks& ranks) {
    std::vector<std::vector<Block>> of_rank;
    for (int rank = 0; rank < ranks.world; ++rank) {
      const LeafRange own = leaves_of_rank(ranks.leaves, rank, ranks.world);
      of_rank.push_back(blocks_of(own.begin, own.end, ranks.leaves));
    }
    for (int rank = 0; rank < ranks.world; ++rank) {
      const ExchangePlan& plan = ranks.plans[rank];
      REQUIRE(plan.own_blocks == of_rank[rank].size());
      for (const BucketPlan& bucket : plan.buckets) {
        std::vector<int> uses(plan.blocks.size());
        for (std::size_t i = 0; i < plan.own_blocks; ++i) {
          REQUIRE(plan.blocks[plan.first_own + i] == of_rank[rank][i]);
          ++uses[plan.first_own + i];
        }
        for (const PartialTransfer& partial : bucket.partials_in) {
          REQUIRE(plan.blocks.at(partial.input) == of_rank[partial.peer].at(partial.block));
          REQUIRE(partial.range == bucket.mine);
          ++uses[partial.input];
        }
        REQUIRE(uses == std::vector<int>(plan.blocks.size(), 1));
      }
    }
  });
}

TEST_CASE("each rank gets every other's slice once, and gives its own to every other") {
  for_all_steps([](const Ranks& ranks) {
    for (int rank = 0; rank < ranks.world; ++rank) {
      for (std::size_t b = 0; b < kBuckets.size(); ++b) {
        const BucketPlan& bucket = ranks.plans[rank].buckets[b];
        const std::size_t peers = bucket.direct ? 0 : ranks.world - 1;
        REQUIRE(bucket.slices_in.size() == peers);
        REQUIRE(bucket.slices_out.size() == peers);
        for (const SliceTransfer& slice : bucket.slices_in)
          REQUIRE(slice.range == ranks.plans[slice.peer].buckets[b].mine);
        for (const SliceTransfer& slice : bucket.slices_out) REQUIRE(slice.range == bucket.mine);
      }
    }
  });
}

// One rank in memory. Vectors hold NaN wherever the plan put nothing.
struct MemoryRank {
  std::vector<Vector> partials;            // of its own blocks, whole
  std::vector<std::vector<Vector>> inbox;  // [bucket][block of all ranks]: what others sent
  Vector sum = Vector(kSize, NAN);
};

void copy_range(const Vector& from, const VectorRange& range, Vector& to) {
  std::copy(from.begin() + range.begin, from.begin() + range.end, to.begin() + range.begin);
}

// Carries out the plans of all ranks, round by round, as the senders have it; returns every rank's sum.
std::vector<Vector> carry_out(const Ranks& ranks, const std::vector<Vector>& leaves) {
  std::vector<MemoryRank> memory(ranks.world);
  for (int rank = 0; rank < ranks.world; ++rank) {
    const ExchangePlan& plan = ranks.plans[rank];
    for (std::size_t i = 0; i < plan.own_blocks; ++i) {
      const Block& block = plan.blocks[plan.first_own + i];
      memory[rank].partials.push_back(recursive_sum(leaves, block.begin, std::size_t{1} << block.level));
    }
    memory[rank].inbox.assign(kBuckets.size(), std::vector<Vector>(plan.blocks.size(), Vector(kSize, NAN)));
  }
  for (int rank = 0; rank < ranks.world; ++rank) {
    for (std::size_t b = 0; b < kBuckets.size(); ++b) {
      for (const PartialTransfer& sent : ranks.plans[rank].buckets[b].partials_out)
        copy_range(memory[rank].partials[sent.block], sent.range, memory[sent.peer].inbox[b][sent.input]);
    }
  }
  for (int rank = 0; rank < ranks.world; ++rank) {
    const ExchangePlan& plan = ranks.plans[rank];
    for (std::size_t b = 0; b < kBuckets.size(); ++b) {
      const VectorRange mine = plan.buckets[b].mine;
      std::vector<const float*> inputs;
      for (const Vector& received : memory[rank].inbox[b]) inputs.push_back(received.data() + mine.begin);
      for (std::size_t i = 0; i < plan.own_blocks; ++i)
        inputs[plan.first_own + i] = memory[rank].partials[i].data() + mine.begin;
      std::ranges::copy(carry_out(plan.total, inputs, mine.size()), memory[rank].sum.begin() + mine.begin);
    }
  }
  for (int rank = 0; rank < ranks.world; ++rank) {
    for (const BucketPlan& bucket : ranks.plans[rank].buckets) {
      for (const SliceTransfer& sent : bucket.slices_out)
        copy_range(memory[rank].sum, sent.range, memory[sent.peer].sum);
    }
  }
  std::vector<Vector> sums;
  for (MemoryRank& rank : memory) sums.push_back(std::move(rank.sum));
  return sums;
}

TEST_CASE("plans carried out in memory give every rank the bits of the plain sum over all leaves") {
  std::mt19937 random(5);
  for_all_steps([&](const Ranks& ranks) {
    const auto leaves = random_leaves(random, static_cast<int>(ranks.leaves), kSize);
    const Vector wanted = recursive_sum(leaves, 0, std::size_t{1} << tree_height(ranks.leaves));
    for (const Vector& sum : carry_out(ranks, leaves)) REQUIRE(same_bits(sum, wanted));
  });
}

TEST_CASE("rank 1 of three with five leaves: an example to read") {
  const std::vector<VectorRange> buckets{{10, 20}};
  const ExchangePlan plan = plan_exchange(5, 1, 3, buckets, 0);
  // Rank 0 has leaf 0, rank 1 leaves 1 and 2, which are no siblings, rank 2 leaves 3 and 4, alone at the
  // edge.
  CHECK(plan.blocks == std::vector<Block>{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 2}});
  CHECK(plan.first_own == 1);
  CHECK(plan.own_blocks == 2);
  const BucketPlan& bucket = plan.buckets[0];
  CHECK(bucket.mine == VectorRange{13, 16});
  const auto text = [](const std::vector<PartialTransfer>& partials) {
    std::string all;
    for (const auto& [peer, block, input, range] : partials) {
      all += "peer " + std::to_string(peer) + " block " + std::to_string(block) + " input " +
             std::to_string(input) + " floats " + std::to_string(range.begin) + "-" +
             std::to_string(range.end) + "\n";
    }
    return all;
  };
  CHECK(text(bucket.partials_in) ==
        "peer 0 block 0 input 0 floats 13-16\n"
        "peer 2 block 0 input 3 floats 13-16\n"
        "peer 2 block 1 input 4 floats 13-16\n");
  CHECK(text(bucket.partials_out) ==
        "peer 0 block 0 input 1 floats 10-13\n"
        "peer 0 block 1 input 2 floats 10-13\n"
        "peer 2 block 0 input 1 floats 16-20\n"
        "peer 2 block 1 input 2 floats 16-20\n");
  CHECK(bucket.slices_in[0].range == VectorRange{10, 13});
  CHECK(bucket.slices_in[1].range == VectorRange{16, 20});
}

}  // namespace
}  // namespace dtrun::worker
