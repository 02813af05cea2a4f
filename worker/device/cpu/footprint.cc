#include "worker/device/cpu/footprint.h"

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/planned/gathered_convolution.h"

namespace dtrun::worker {
namespace {

// A group of 16 costs the same however few of its rows are real, rows by themselves as much for each. With
// AVX-512 a group of the convnet takes 0.7 ms in training, three rows by themselves as long.
constexpr int kRowsWorthAGroup = 3;

}  // namespace

PlanFor plan_for_cpu(const Program& program, int capacity, bool forward_only) {
  const bool in_groups = capacity >= kRowsWorthAGroup && !program.bf16 && fits_groups(program);
  return {.group = in_groups ? grouped::kGroup : 1, .forward_only = forward_only};
}

std::size_t cpu_lane_floats(const Program& program, int capacity, bool forward_only) {
  const Plan plan = make_plan(program, capacity, plan_for_cpu(program, capacity, forward_only));
  return plan.arena + plan.scores + planned::lane_columns(program, plan, capacity);
}

}  // namespace dtrun::worker
