// A lane's way of enqueuing, which only the stand-in can tell: how many graphs were launched, what happens
// where none can be recorded, and what runs before what.
#include <cuda_on_cpu.h>
#include <doctest/doctest.h>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cuda/kernels/launches.h"

namespace dtrun::worker::graphs_test {
namespace {

using cuda_on_cpu::counters;

Program small_gpt2() {
  ModelConfig config = tiny_gpt2();
  config.dropout = 0.25;
  Program program = gpt2_program(config, 7, 13);
  program.bf16 = true;
  return program;
}

TEST_CASE("memory that comes back gets a graph, which does what the steps do") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  std::vector<cuda_on_cpu::Counters> seen;
  for (int i = 0; i < 4; ++i) {
    cuda_on_cpu::reset_counters();
    gpu.train(problem.microbatch(2));
    seen.push_back(counters());
  }
  CHECK(seen[0].graphs == 0);
  for (int i = 1; i < 4; ++i) {
    CHECK(seen[i].graphs == 1);
    CHECK(seen[i].kernels_by_name == seen[0].kernels_by_name);
    CHECK(seen[i].matmuls == seen[0].matmuls);
  }
}

TEST_CASE("no graph is launched while operations are timed, and the known ones are again behind that") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  for (int i = 0; i < 3; ++i) gpu.train(problem.microbatch(2));
  cuda_on_cpu::reset_counters();
  gpu.timer().start();
  gpu.train(problem.microbatch(2));
  gpu.timer().read();
  CHECK(counters().graphs == 0);
  gpu.timer().stop();
  cuda_on_cpu::reset_counters();
  gpu.train(problem.microbatch(2));
  CHECK(counters().graphs == 1);
}

TEST_CASE("parameters elsewhere are used, not those of the graph") {
  const Program program = small_gpt2();
  const Problem problem(program, 2), other(program, 2, 7);
  OnGpu gpu(program, 2), fresh(program, 2);
  gpu.load(problem.parameters);
  for (int i = 0; i < 3; ++i) gpu.train(problem.microbatch(2));
  const Buffer elsewhere = gpu.arithmetic().allocate(Where::kDevice, program.size);
  gpu.arithmetic().copy(gpu.lane().stream(), elsewhere.data(), other.parameters.data(), program.size);
  gpu.lane().stream().wait();
  gpu.lane().parameters_changed(elsewhere.data());
  fresh.load(other.parameters);
  const LaneResult wanted = fresh.train(other.microbatch(2));
  for (int i = 0; i < 3; ++i) CHECK(same_bits(gpu.train(other.microbatch(2)), wanted));
}

TEST_CASE("parameters that are used in turns keep their graphs, but not more than some") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  std::vector<Buffer> vectors;
  const auto graphs_in_turns = [&](std::size_t many) {
    while (vectors.size() < many) {
      vectors.push_back(gpu.arithmetic().allocate(Where::kDevice, program.size));
      gpu.arithmetic().copy(gpu.lane().stream(), vectors.back().data(), problem.parameters.data(),
                            program.size);
    }
    for (int round = 0; round < 3; ++round) {
      cuda_on_cpu::reset_counters();
      for (const Buffer& vector : vectors) {
        gpu.lane().parameters_changed(vector.data());
        gpu.train(problem.microbatch(2));
      }
    }
    return counters().graphs;
  };
  CHECK(graphs_in_turns(3) == 3);
  CHECK(graphs_in_turns(20) == 0);
  CHECK(cuda_on_cpu::alive().graphs < 8);
}

TEST_CASE("kernels whose code waits for no other kernel are launched behind it, whatever the GPU could do") {
  CHECK(cuda::may_launch_programmatically());
  for (const int architecture : {0, 80, 89}) {
    cuda_on_cpu::settings.compiled_for = architecture;
    CHECK(!cuda::may_launch_programmatically());
  }
  cuda_on_cpu::settings.compiled_for = 100;
  CHECK(cuda::may_launch_programmatically());
  cuda_on_cpu::settings.compiled_for = 90;
}

TEST_CASE("where programmatic launches cannot be recorded a graph of plain ones is") {
  REQUIRE(cuda::programmatic_launches());
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  const LaneResult wanted = gpu.train(problem.microbatch(2));
  cuda_on_cpu::plan_faults({.capture = cudaErrorStreamCaptureUnsupported, .captures = 1});
  cuda_on_cpu::reset_counters();
  for (int i = 0; i < 3; ++i) CHECK(same_bits(gpu.train(problem.microbatch(2)), wanted));
  CHECK(counters().graphs == 3);
  CHECK(!cuda::programmatic_launches());
  const DeviceUse use = gpu.use();
  CHECK(use.parts.at("graphs") == "used");
  CHECK(use.parts.at("programmatic_launches") == "no graph has them");
  REQUIRE(use.fallbacks.size() == 2);  // there is no cuDNN here
  CHECK(use.fallbacks.back().starts_with("kernels are launched one after the other"));
  cuda_on_cpu::plan_faults({});
}

TEST_CASE("what cannot be recorded is launched kernel by kernel, with the same bits") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  const LaneResult wanted = gpu.train(problem.microbatch(2));
  cuda_on_cpu::plan_faults({.capture = cudaErrorStreamCaptureUnsupported});
  cuda_on_cpu::reset_counters();
  for (int i = 0; i < 3; ++i) CHECK(same_bits(gpu.train(problem.microbatch(2)), wanted));
  CHECK(counters().graphs == 0);
  const DeviceUse use = gpu.use();
  CHECK(use.parts.at("graphs") == "none can be recorded");
  CHECK(use.fallbacks.back().starts_with("microbatches are launched kernel by kernel"));
  cuda_on_cpu::plan_faults({});
}

TEST_CASE("a device tells by what it computes, and what of that is slower than it is meant to be") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  const DeviceUse before = gpu.use();
  CHECK(before.parts.at("graphs") == "not launched yet");
  CHECK(before.parts.at("attention") == "own kernels");
  CHECK(before.parts.at("fused_epilogues") == "18 of 18 matmuls");
  CHECK(before.parts.at("side_streams") == "1");
  REQUIRE(before.fallbacks.size() == 1);
  CHECK(before.fallbacks[0].starts_with("attention is computed by own kernels, not by cuDNN: "));
  for (int i = 0; i < 2; ++i) gpu.train(problem.microbatch(2));
  CHECK(gpu.use().parts.at("graphs") == "used");
  CHECK(gpu.use().fallbacks.size() == 1);
  OnGpu without(program, 2, {.graphs = false});
  CHECK(without.use().parts.at("graphs") == "switched off");
  CHECK(without.use().fallbacks.size() == 1);
}

TEST_CASE("GPT-2 has no matmul of a size that tensor cores are slow at, however many tokens it knows") {
  const Program program = small_gpt2();
  REQUIRE(program.parameters[0].shape == std::vector<std::int64_t>{13, 8});
  const Problem problem(program, 8);
  const LaneResult wanted = [&] {
    OnGpu gpu(program, 8);
    gpu.load(problem.parameters);
    return gpu.train(problem.microbatch(8));
  }();
  cuda_on_cpu::settings.misaligned_products = false;
  OnGpu gpu(program, 8);
  cuda_on_cpu::settings.misaligned_products = true;
  gpu.load(problem.parameters);
  CHECK(same_bits(gpu.train(problem.microbatch(8)), wanted));
  CHECK(gpu.use().parts.at("fused_epilogues") == "18 of 18 matmuls");
}

TEST_CASE("a lane gives back what its graphs took") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  const cuda_on_cpu::Alive before = cuda_on_cpu::alive();
  {
    OnGpu gpu(program, 2);
    gpu.load(problem.parameters);
    for (int i = 0; i < 3; ++i) gpu.train(problem.microbatch(2));
    CHECK(cuda_on_cpu::alive().graphs > before.graphs);
  }
  CHECK(cuda_on_cpu::alive() == before);
}

TEST_CASE("the next microbatch is copied to the GPU before the one in front of it is computed") {
  const Program program = small_gpt2();
  const Problem problem(program, 2);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  gpu.lane().stream().wait();
  std::vector<Buffer> outs;
  std::vector<cuda_on_cpu::Counters> seen;
  cuda_on_cpu::reset_counters();
  // Work that nobody waits for does not run in the stand-in. From the third on the host waits for pinned
  // memory to be free.
  for (int i = 0; i < 4; ++i) {
    outs.push_back(gpu.arithmetic().allocate(Where::kDevice, kStatisticsFloats + program.size));
    gpu.lane().train(problem.microbatch(2), outs.back().data(), [](int) {});
    seen.push_back(counters());
  }
  CHECK(seen[1].copied_to_device == 0);
  CHECK(seen[2].copied_to_device > 0);
  CHECK(seen[3].copied_to_device == 2 * seen[2].copied_to_device);
  CHECK(seen[3].kernels_by_name.empty());
  gpu.lane().stream().wait();
  CHECK(counters().copied_to_device == 4 * seen[2].copied_to_device);
}

TEST_CASE("a microbatch that was prepared is on the GPU before it is trained, and is no other one") {
  const Program program = small_gpt2();
  const Problem problem(program, 2), other(program, 2, 7);
  OnGpu gpu(program, 2);
  gpu.load(problem.parameters);
  const auto with_key = [](Microbatch microbatch, std::uint64_t number) {
    microbatch.key.number = number;
    return microbatch;
  };
  const Microbatch first = with_key(problem.microbatch(2), 5), second = with_key(other.microbatch(1), 6);
  const LaneResult of_first = gpu.train(first), of_second = gpu.train(second);
  // Only the key is looked at, and each is taken once.
  for (int i = 0; i < 3; ++i) {
    gpu.lane().prepare(second);
    CHECK(gpu.lane().is_prepared(second.key));
    CHECK_FALSE(gpu.lane().is_prepared(first.key));
    CHECK(same_bits(gpu.train({.samples = second.samples, .key = second.key}), of_second));
    CHECK_FALSE(gpu.lane().is_prepared(second.key));
  }
  // A microbatch that comes in between is computed, and the prepared one is given up.
  for (int i = 0; i < 3; ++i) {
    gpu.lane().prepare(second);
    CHECK(same_bits(gpu.train(first), of_first));
    CHECK_FALSE(gpu.lane().is_prepared(second.key));
    gpu.lane().prepare(second);
    gpu.lane().evaluate(first);
    CHECK_FALSE(gpu.lane().is_prepared(second.key));
    CHECK(same_bits(gpu.train(second), of_second));
  }
}

}  // namespace
}  // namespace dtrun::worker::graphs_test
