#include "worker/device/cpu/footprint.h"

#include <algorithm>

#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/lowering.h"
#include "worker/model/plan.h"

namespace dtrun::worker {
namespace {

// A group of 16 costs the same however few of its rows are real; oneDNN's time grows with the rows. For the
// convnet with AVX-512 the two times are equal between 5 and 6 rows (0.7 ms); at 16 rows oneDNN takes 2.8
// times as long, because its channel blocks of 16 fit 20 channels badly.
constexpr int kRowsWorthAGroup = 6;

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
  return plan.arena + plan.logit_rows * program.sample.classes + plan.scores +
         (program.bf16 ? rounded_floats(program, plan, capacity) : 0);
}

// Each activation with its gradient, without the samples; the logits and their gradient in rows as well.
std::size_t image_floats(const Program& program, std::size_t rows, bool grouped) {
  const LoweredProgram lowered = lower(program);
  std::size_t floats = rows * (program.sample.shape.size() + 2 * lowered.classes);
  for (const Operation& operation : lowered.operations) {
    floats += 2 * rows * operation.out.size();
    if (grouped && std::holds_alternative<Linear>(operation.op))
      floats += rows * grouped::padded_features(static_cast<int>(operation.in.size()));
  }
  return floats;
}

}  // namespace

CpuLayout cpu_layout(const Program& program, int capacity) {
  if (!is_for_images(program)) return CpuLayout::kPlanned;
  return capacity >= kRowsWorthAGroup ? CpuLayout::kGrouped : CpuLayout::kOneDnn;
}

std::size_t cpu_lane_floats(const Program& program, int capacity) {
  const auto rows = static_cast<std::size_t>(capacity);
  switch (cpu_layout(program, capacity)) {
    case CpuLayout::kPlanned:
      return planned_floats(program, capacity);
    case CpuLayout::kGrouped:
      return image_floats(program, (rows + grouped::kGroup - 1) / grouped::kGroup * grouped::kGroup, true);
    case CpuLayout::kOneDnn:
      break;
  }
  // The oneDNN graph also keeps the weights in oneDNN's order, and a gradient.
  return image_floats(program, rows, false) + 3 * program.size;
}

}  // namespace dtrun::worker
