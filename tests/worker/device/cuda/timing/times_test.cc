// Timing each operation of a GPU's lane, on the stand-in for a GPU and on one: all of them are recorded, once
// each and on their streams, and nothing else changes.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/device/cuda/orders.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/steps.h"
#include "worker/schedule/step_kind.h"

namespace dtrun::worker::times_test {
namespace {

constexpr int kCapacity = 3;

using Key = std::tuple<std::string, std::string, int, std::string>;  // what, part, node, stream

std::map<Key, int> scheduled(const Program& program) {
  cuda::Matmuls matmuls;
  const cuda::Schedule made =
      cuda::make_schedule(program, make_plan(program, kCapacity, cuda::plan_for_gpu(program.bf16)), kCapacity,
                          {.bf16 = program.bf16,
                           .multiplies = [&](const cuda::MatmulShape& shape) { return matmuls.can(shape); }});
  std::map<Key, int> steps;
  const auto add = [&](const cuda::Step& step) {
    if (!schedule::is_work(step)) return;
    const OpKind kind = schedule::kind_of(program, step);
    ++steps[{kind.what, kind.part, step.node, step.stream == 0 ? "lane" : "side 1"}];
  };
  for (const cuda::Step& step : made.forward) add(step);
  for (const cuda::Step& step : made.backward) add(step);
  return steps;
}

// Counts only the steps of a schedule.
std::map<Key, int> timed(const OpTimes& times) {
  std::map<Key, int> steps;
  for (const OpTime& time : times.times) {
    const TimedOp& op = times.ops[static_cast<std::size_t>(time.op)];
    if (!op.kind.part.empty())
      ++steps[{op.kind.what, op.kind.part, op.node, times.streams[static_cast<std::size_t>(time.stream)]}];
  }
  return steps;
}

void check_order(const OpTimes& times) {
  std::map<int, double> done;
  for (const OpTime& time : times.times) {
    CHECK(time.begin >= done[time.stream]);
    CHECK(time.end >= time.begin);
    done[time.stream] = time.end;
  }
}

TEST_CASE("each step of a microbatch is timed once, on its stream, and the bits stay the same") {
  for (NamedProgram& named : planned_programs()) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      named.program.bf16 = bf16;
      OnGpu gpu(named.program, kCapacity);
      const Problem problem(named.program, kCapacity);
      gpu.load(problem.parameters);
      const LaneResult wanted = gpu.train(problem.microbatch(kCapacity));
      gpu.timer().start();
      CHECK(same_bits(gpu.train(problem.microbatch(kCapacity)), wanted));
      gpu.timer().read();
      const std::map<Key, int> one = scheduled(named.program);
      CHECK(timed(gpu.timer().times()) == one);
      // Two more, in another order of streams; times go on.
      const cuda::testing::OtherOrderOfStreams order(5);
      for (int i = 0; i < 2; ++i) CHECK(same_bits(gpu.train(problem.microbatch(kCapacity)), wanted));
      gpu.timer().read();
      std::map<Key, int> three = one;
      for (auto& [key, count] : three) count *= 3;
      CHECK(timed(gpu.timer().times()) == three);
      check_order(gpu.timer().times());
      gpu.timer().stop();
      for (int i = 0; i < 3; ++i) CHECK(same_bits(gpu.train(problem.microbatch(kCapacity)), wanted));
      gpu.timer().read();
      CHECK(timed(gpu.timer().times()) == three);
      gpu.timer().start();
      CHECK(gpu.timer().times().times.empty());
    }
  }
}

TEST_CASE("what is done to whole vectors is timed as well, and says what it moves") {
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  OnGpu gpu(program, kCapacity);
  Arithmetic& arithmetic = gpu.arithmetic();
  constexpr std::size_t kFloats = 1000;
  const Buffer a = arithmetic.allocate(Where::kDevice, kFloats),
               b = arithmetic.allocate(Where::kDevice, kFloats);
  const auto stream = arithmetic.make_stream();
  stream->set_name("mine");
  gpu.timer().start();
  arithmetic.accumulate(*stream, a.data(), b.data(), kFloats);
  arithmetic.copy(*stream, a.data(), b.data(), kFloats);
  gpu.timer().read();
  const OpTimes& times = gpu.timer().times();
  REQUIRE(times.times.size() == 2);
  CHECK(times.streams == std::vector<std::string>{"mine"});
  CHECK(times.ops[0].kind == OpKind{"adding microbatches up", ""});
  CHECK(times.ops[0].cost.read == 2 * 4 * kFloats);
  CHECK(times.ops[0].cost.written == 4 * kFloats);
  CHECK(times.ops[1].kind == OpKind{"copying", ""});
  check_order(times);
  gpu.timer().stop();
}

}  // namespace
}  // namespace dtrun::worker::times_test
