#include "worker/core/local_replicas.h"

#include <doctest/doctest.h>

#include <vector>

namespace dtrun::worker {
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

TEST_CASE("fragments meet in turns, and none is on its way at a sync or at the end") {
  const SyncTimes times{.every = 4, .fragments = 3, .delay = 3, .last = 30};
  std::vector<int> met;
  for (std::int64_t sync = 0; sync < times.last; sync = next_sync(sync, times.every, times.last)) {
    const auto arrival = times.arrival(sync);
    if (!arrival) continue;
    CHECK(*arrival == sync + 3);
    CHECK(*arrival < next_sync(sync, times.every, times.last));
    met.push_back(times.fragment_of(sync));
  }
  CHECK(met == std::vector<int>{1, 2, 0, 1, 2, 0});  // not at 28, whose fragment would arrive after 30
  CHECK_FALSE(times.arrival(0));
  CHECK_FALSE(times.arrival(30));
  CHECK_FALSE(times.arrival(9));  // where a shorter run ended
  CHECK_FALSE(SyncTimes{.every = 4, .last = 30}.arrival(4));
}

TEST_CASE("the fragments are the vector, in parts of whole cache lines") {
  for (const std::size_t size : {1u, 16u, 17u, 100u, 1000u}) {
    for (int fragments = 1; fragments <= 9; ++fragments) {
      CAPTURE(size);
      CAPTURE(fragments);
      std::size_t end = 0;
      for (int fragment = 0; fragment < fragments; ++fragment) {
        const VectorRange range = elements_of(fragment, fragments, size);
        CHECK(range.begin == end);
        CHECK((range.begin % 16 == 0 || range.size() == 0));
        CHECK(range.size() <= elements_of(0, fragments, size).size());
        end = range.end;
      }
      CHECK(end == size);
    }
  }
  CHECK(elements_of(1, 3, 96) == VectorRange{32, 64});
}

TEST_CASE("what is due between two syncs is due at the second one") {
  CHECK(passes(0, 8, 5));
  CHECK_FALSE(passes(5, 9, 5));
  CHECK(passes(8, 10, 10));
  CHECK_FALSE(passes(10, 11, 10));
}

}  // namespace
}  // namespace dtrun::worker
