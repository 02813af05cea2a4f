#include "worker/trainer/lock_step.h"

#include <algorithm>
#include <atomic>
#include <variant>

#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/base/stop_point.h"
#include "worker/core/group_sum.h"

namespace dtrun::worker {
namespace {

std::vector<std::size_t> widths_of(const Program& program) {
  std::vector<std::size_t> widths;
  for (const Node& node : program.nodes)
    if (const auto* const norm = std::get_if<BatchNorm>(&node.op)) widths.push_back(2 * norm->channels + 1);
  const std::size_t norms = widths.size();
  for (std::size_t i = norms; i > 0; --i) widths.push_back(widths[i - 1]);
  return widths;
}

}  // namespace

LockStep::LockStep(const TrainConfig& config, const Program& program, const Dataset& data,
                   ProcessGroup& group, Device& device, LaneTeam& lanes, StepClock& clock)
    : config_(config),
      program_(program),
      data_(data),
      group_(group),
      device_(device),
      lanes_(lanes),
      clock_(clock),
      widths_(widths_of(program)) {}

void LockStep::run(const Step& step) {
  own_ = leaves_of_rank(step.leaves, group_.rank(), group_.size());
  while (static_cast<std::int64_t>(leaves_.size()) < own_.end - own_.begin)
    leaves_.push_back({.lane = device_.make_lane(program_, config_.micro_batch_size),
                       .input = MicrobatchInput(data_, config_.micro_batch_size),
                       .sums = {}});
  each_leaf(StepClock::kData, [&](std::int64_t leaf, Leaf& at) {
    stop_point(StopPoint::kMicrobatch);
    at.lane->parameters_changed(step.weights);
    at.lane->begin(step.microbatch(leaf, at.input), step.out(leaf, *at.lane));
  });
  const auto go_on = [](Leaf& at, std::size_t width) {
    at.sums = at.lane->go_on([](int) {});
    if (at.sums.size() != width) throw WorkerError(kExitSoftware, "a lane is at another batch norm");
  };
  for (const std::size_t width : widths_) {
    each_leaf(StepClock::kMath, [&](std::int64_t, Leaf& at) { go_on(at, width); });
    exchange(step.leaves, width);
    stop_point(StopPoint::kNormsExchanged);
  }
  each_leaf(StepClock::kMath, [&](std::int64_t leaf, Leaf& at) {
    go_on(at, 0);
    step.completed(leaf, *at.lane);
  });
  clock_.add({}, own_.end - own_.begin);
}

void LockStep::wait(bool gradients_too) {
  for (const Leaf& at : leaves_) {
    at.lane->stream().wait();
    if (gradients_too) at.lane->gradients().wait();
  }
}

void LockStep::each_leaf(StepClock::Part part, const std::function<void(std::int64_t leaf, Leaf& at)>& work) {
  const StepClock::Scope timed(clock_, part);
  std::atomic<std::int64_t> next{own_.begin};
  lanes_.run([&](int, Lane&) {
    for (std::int64_t leaf; (leaf = next.fetch_add(1, std::memory_order_relaxed)) < own_.end;) {
      group_.check();
      work(leaf, leaves_[leaf - own_.begin]);
      Pulse::beat();
    }
  });
}

void LockStep::exchange(std::int64_t leaves, std::size_t width) {
  const StepClock::Scope waiting(clock_, StepClock::kGradients);
  const GroupSum sum(leaves, config_.batch_norm_group, group_.rank(), group_.size());
  std::vector<std::span<double>> own;
  for (std::int64_t leaf = own_.begin; leaf < own_.end; ++leaf)
    own.push_back(leaves_[leaf - own_.begin].sums);
  const std::size_t record = sum.record() * width;
  std::vector<double> records(record * group_.size());
  sum.add_up(own, std::span(records).subspan(group_.rank() * record, record));
  if (group_.size() > 1) group_.all_gather(bytes_of(records));
  sum.give_out(records, own);
}

}  // namespace dtrun::worker
