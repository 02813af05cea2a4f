#include "worker/device/cpu/footprint.h"

#include <algorithm>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/lowering.h"
#include "worker/model/plan.h"

namespace dtrun::worker {
namespace {

// A group of 16 costs the same however few of its rows are real, the planned lane as much for each row. With
// AVX-512 a group of the convnet takes 0.7 ms in training, three rows of a plan as long.
constexpr int kRowsWorthAGroup = 3;

// Whether the program has operations on images, which need layouts of their own.
bool is_for_images(const Program& program) {
  return std::ranges::any_of(program.nodes, [](const Node& node) {
    return std::holds_alternative<Conv2d>(node.op) || std::holds_alternative<MaxPool2d>(node.op);
  });
}

// The values that a lane rounds to bf16, two to a float: the parameters, both sides of the largest matmul,
// scores.
std::size_t rounded_floats(const Program& program, const Plan& plan, int capacity) {
  std::size_t largest = plan.logit_rows * program.sample.classes;
  for (const ValueShape& value : program.values)
    largest = std::max(largest, static_cast<std::size_t>(capacity) * value.size());
  return (program.size + 2 * largest + plan.scores) / 2;
}

std::size_t planned_floats(const Program& program, int capacity) {
  const Plan plan = make_plan(program, capacity);
  return plan.arena + plan.logit_rows * program.sample.classes + plan.scores + plan.columns +
         (program.bf16 ? rounded_floats(program, plan, capacity) : 0);
}

// Each activation with its gradient, without the samples; the logits and their gradient in rows as well.
std::size_t grouped_floats(const Program& program, std::size_t rows) {
  const LoweredProgram lowered = lower(program);
  std::size_t floats = rows * (program.sample.shape.size() + 2 * lowered.classes);
  for (const Operation& operation : lowered.operations) {
    floats += 2 * rows * operation.out.size();
    if (std::holds_alternative<Linear>(operation.op))
      floats += rows * grouped::padded_features(static_cast<int>(operation.in.size()));
  }
  return floats;
}

}  // namespace

CpuLayout cpu_layout(const Program& program, int capacity) {
  return is_for_images(program) && capacity >= kRowsWorthAGroup ? CpuLayout::kGrouped : CpuLayout::kPlanned;
}

std::size_t cpu_lane_floats(const Program& program, int capacity) {
  if (cpu_layout(program, capacity) == CpuLayout::kPlanned) return planned_floats(program, capacity);
  const auto rows = static_cast<std::size_t>(capacity);
  return grouped_floats(program, (rows + grouped::kGroup - 1) / grouped::kGroup * grouped::kGroup);
}

}  // namespace dtrun::worker
