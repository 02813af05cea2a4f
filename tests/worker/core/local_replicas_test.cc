#include "worker/core/local_replicas.h"

#include <doctest/doctest.h>

#include <vector>

namespace dtrun::worker::local_replicas_test {
namespace {

TEST_CASE("every replica is computed by one group of ranks, and handed in by one rank of it") {
  for (int replicas = 1; replicas <= 9; ++replicas) {
    for (int world = 1; world <= 17; ++world) {
      CAPTURE(replicas);
      CAPTURE(world);
      std::vector<int> computed(replicas), handed_in(replicas);
      for (int rank = 0; rank < world; ++rank) {
        CAPTURE(rank);
        const LocalShare share = share_of_rank(replicas, rank, world);
        REQUIRE(share.replicas.begin < share.replicas.end);
        CHECK((share.group.begin <= rank && rank < share.group.end));
        for (std::int64_t peer = share.group.begin; peer < share.group.end; ++peer) {
          const LocalShare other = share_of_rank(replicas, static_cast<int>(peer), world);
          CHECK((other.replicas == share.replicas && other.group == share.group));
        }
        CHECK(share.handed_in == leaves_of_rank(replicas, rank, world));  // as TreeAllReduce takes them
        for (std::int64_t j = share.handed_in.begin; j < share.handed_in.end; ++j) {
          CHECK((share.replicas.begin <= j && j < share.replicas.end));
          CHECK(rank_of_replica(replicas, j, world) == rank);
          ++handed_in[static_cast<std::size_t>(j)];
        }
        if (share.group.begin == rank)
          for (std::int64_t j = share.replicas.begin; j < share.replicas.end; ++j)
            ++computed[static_cast<std::size_t>(j)];
      }
      CHECK(computed == std::vector<int>(replicas, 1));
      CHECK(handed_in == std::vector<int>(replicas, 1));
    }
  }
}

TEST_CASE("three workers take four replicas in turns, five share two") {
  CHECK(share_of_rank(4, 2, 3) == LocalShare{.replicas = {2, 4}, .group = {2, 3}, .handed_in = {2, 4}});
  CHECK(share_of_rank(2, 1, 5) == LocalShare{.replicas = {0, 1}, .group = {0, 3}, .handed_in = {}});
  CHECK(share_of_rank(2, 2, 5) == LocalShare{.replicas = {0, 1}, .group = {0, 3}, .handed_in = {0, 1}});
  CHECK(share_of_rank(2, 3, 5).group == LeafRange{3, 5});
}

TEST_CASE("the replicas' parts of a step are the step") {
  const BatchSampler batches(301, 32, 4, 2, -1);  // a last step of 13 samples in 4 leaves
  for (const int replicas : {1, 2, 4, 8}) {
    for (std::int64_t number = 0; number < batches.total_steps(); ++number) {
      const StepPlan step = batches.step(number);
      StepPlan at = step;
      for (int j = 0; j < replicas; ++j) {
        const StepPlan part = part_of_replica(step, j, replicas, 4);
        CHECK(part.first_sample == at.first_sample);
        CHECK(part.first_leaf == at.first_leaf);
        CHECK(part.epoch == step.epoch);
        CHECK(part.leaves == (part.samples + 3) / 4);
        at.first_sample += part.samples;
        at.first_leaf += part.leaves;
      }
      CHECK(at.first_sample == step.first_sample + step.samples);
      CHECK(at.first_leaf == step.first_leaf + step.leaves);
    }
  }
  const StepPlan last = batches.step(batches.steps_per_epoch() - 1);
  CHECK(part_of_replica(last, 0, 8, 4).leaves == 0);  // 4 leaves for 8 replicas
}

TEST_CASE("replicas meet at multiples of the interval and at the end") {
  CHECK(next_sync(0, 8, 20) == 8);
  CHECK(next_sync(7, 8, 20) == 8);
  CHECK(next_sync(8, 8, 20) == 16);
  CHECK(next_sync(16, 8, 20) == 20);
  CHECK(next_sync(3, 1, 20) == 4);
}

TEST_CASE("what is due between two syncs is due at the second one") {
  CHECK(passes(0, 8, 5));
  CHECK_FALSE(passes(5, 9, 5));
  CHECK(passes(8, 10, 10));
  CHECK_FALSE(passes(10, 11, 10));
}

}  // namespace
}  // namespace dtrun::worker::local_replicas_test
