#include "worker/core/local_replicas.h"

#include <algorithm>

namespace dtrun::worker {
namespace {

std::int64_t rounded_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

}  // namespace

LocalShare share_of_rank(int replicas, int rank, int world) {
  const LeafRange handed_in = leaves_of_rank(replicas, rank, world);
  if (world <= replicas) return {.replicas = handed_in, .group = {rank, rank + 1}, .handed_in = handed_in};
  const std::int64_t own = std::int64_t{rank} * replicas / world;
  return {.replicas = {own, own + 1},
          .group = {rounded_up(own * world, replicas), rounded_up((own + 1) * world, replicas)},
          .handed_in = handed_in};
}

// leaves_of_rank() turned around: the largest rank whose range does not begin behind the replica.
int rank_of_replica(int replicas, std::int64_t replica, int world) {
  return static_cast<int>(rounded_up((replica + 1) * world, replicas)) - 1;
}

StepPlan part_of_replica(const StepPlan& step, std::int64_t replica, int replicas, int micro_batch) {
  const std::int64_t begin = replica * step.leaves / replicas, end = (replica + 1) * step.leaves / replicas;
  const auto samples_before = [&](std::int64_t leaf) { return std::min(leaf * micro_batch, step.samples); };
  StepPlan part = step;
  part.first_sample += samples_before(begin);
  part.samples = samples_before(end) - samples_before(begin);
  part.leaves = end - begin;
  part.first_leaf += begin;
  return part;
}

std::int64_t next_sync(std::int64_t step, std::int64_t every, std::int64_t last) {
  return std::min((step / every + 1) * every, last);
}

std::int64_t sync_before(std::int64_t step, std::int64_t every) { return (step - 1) / every * every; }

bool passes(std::int64_t before, std::int64_t now, std::int64_t every) {
  return now / every > before / every;
}

}  // namespace dtrun::worker
