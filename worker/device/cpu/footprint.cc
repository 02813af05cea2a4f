#include "worker/device/cpu/footprint.h"

#include <algorithm>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/planned/gathered_convolution.h"

namespace dtrun::worker {
namespace {

// A group of 16 costs the same however few of its rows are real, rows by themselves as much for each. With
// AVX-512 a group of the convnet takes 0.7 ms in training, three rows by themselves as long.
constexpr int kRowsWorthAGroup = 3;

// The values that a lane rounds to bf16, two to a float: the parameters, both sides of the largest matmul,
// scores.
std::size_t rounded_floats(const Program& program, const Plan& plan, int capacity) {
  std::size_t largest = std::max(plan.logit_rows * plan.logit_width, plan.columns);
  for (const ValueShape& value : program.values)
    largest = std::max(largest, static_cast<std::size_t>(capacity) * value.size());
  return (program.size + 2 * largest + plan.scores) / 2;
}

}  // namespace

PlanFor plan_for_cpu(const Program& program, int capacity, bool forward_only) {
  const bool in_groups = capacity >= kRowsWorthAGroup && !program.bf16 && fits_groups(program);
  return {.group = in_groups ? grouped::kGroup : 1, .forward_only = forward_only};
}

std::size_t cpu_lane_floats(const Program& program, int capacity, bool forward_only) {
  const Plan plan = make_plan(program, capacity, plan_for_cpu(program, capacity, forward_only));
  return plan.arena + plan.scores + planned::lane_columns(program, plan, capacity) +
         (program.bf16 ? rounded_floats(program, plan, capacity) : 0) +
         (program.quantize_aware ? program.size : 0);
}

}  // namespace dtrun::worker
