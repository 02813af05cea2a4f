// The times that a CPU's lanes tell of their steps.
#include "worker/device/lane_timer.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/worker/model/programs.h"
#include "worker/device/device.h"
#include "worker/model/builder.h"

namespace dtrun::lane_timer_test {

using namespace dtrun::worker;

namespace {

// Nodes: 0 a linear layer, 1 a ReLU, 2 the same linear layer again, 3 the logits, 4 the loss.
Program chain() {
  ProgramBuilder builder({.shape = {1, 1, 16}, .classes = 4});
  const Value hidden = builder.relu(builder.linear(builder.input(), "a", 16));
  return builder.finish(builder.linear(builder.linear(hidden, "b", 16), "head", 4));
}

void train(Lane& lane, const Problem& problem, const Program& program) {
  std::vector<float> out(kStatisticsFloats + program.size);
  lane.train(problem.microbatch(8), out.data(), [](int) {});
}

int times_of(const OpTimes& times, const std::string& what, const std::string& part, int stream) {
  return static_cast<int>(std::ranges::count_if(times.times, [&](const OpTime& time) {
    const OpKind& kind = times.ops[static_cast<std::size_t>(time.op)].kind;
    return kind == OpKind{what, part} && time.stream == stream && time.end >= time.begin;
  }));
}

}  // namespace

TEST_CASE("each lane tells of its steps while the timer is on") {
  const Program program = chain();
  const Problem problem(program, 8);
  const auto device = make_cpu_device();
  const auto first = device->make_lane(program, 8), second = device->make_lane(program, 8);
  for (const auto& lane : {first.get(), second.get()}) lane->parameters_changed(problem.parameters.data());
  train(*first, problem, program);
  CHECK(device->timer().times().times.empty());

  device->timer().start();
  train(*first, problem, program);
  train(*second, problem, program);
  train(*second, problem, program);
  device->timer().stop();
  train(*first, problem, program);
  const OpTimes& times = device->timer().times();
  CHECK(times.streams.size() == 2);
  for (const int lane : {0, 1}) {
    CHECK(times_of(times, "Linear 16 -> 16 + ReLU", "forward", lane) == lane + 1);
    CHECK(times_of(times, "Linear 16 -> 16", "forward", lane) == lane + 1);
    CHECK(times_of(times, "Linear 16 -> 16", "weight gradient", lane) == 2 * (lane + 1));
    CHECK(times_of(times, "Linear 16 -> 16", "input gradient", lane) == lane + 1);  // not of the first layer
    CHECK(times_of(times, "ReLU 16", "backward", lane) == lane + 1);
    CHECK(times_of(times, "Linear 16 -> 4", "forward", lane) == lane + 1);
    CHECK(times_of(times, "Loss of 4 classes", "forward, backward", lane) == lane + 1);
  }
  for (const OpTime& time : times.times) {
    const TimedOp& op = times.ops[static_cast<std::size_t>(time.op)];
    if (op.kind.what == "Linear 16 -> 16" && op.kind.part != "bias gradient")
      CHECK(op.cost.flops == 2.0 * 8 * 16 * 16);
  }

  device->timer().start();
  CHECK(times.times.empty());
}

}  // namespace dtrun::lane_timer_test
