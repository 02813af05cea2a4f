// The GPU's lane against the reference and the CPU's, on the stand-in for a GPU and on one: right, and the
// same bits however streams, blocks and threads are interleaved.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/device/cuda/orders.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/base/error.h"
#include "worker/quantize/matrices.h"

namespace dtrun::worker::lane_test {
namespace {

reference::Result expected(const Program& program, const Problem& problem, int samples,
                           bool training = true) {
  const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
  return reference::run(program, parameters, problem.microbatch(samples), training);
}

// Length of the difference, relative to the right vector's.
double distance(const std::vector<float>& gradient, const std::vector<double>& right) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    difference += std::pow(gradient[i] - right[i], 2);
    length += std::pow(right[i], 2);
  }
  return std::sqrt(difference / length);
}

std::vector<NamedProgram> all_programs() {
  std::vector<NamedProgram> programs = planned_programs();
  for (NamedProgram& named : test_programs()) programs.push_back(std::move(named));
  return programs;
}

// Three that have all kinds of a lane's work between them: attention and recomputation, branches and pools,
// batch norms.
std::vector<NamedProgram> telling_programs() {
  const std::set<std::string> telling{"gpt2 with dropout and recomputation", "images in branches that meet",
                                      "resnet of bottlenecks"};
  std::vector<NamedProgram> programs = all_programs();
  std::erase_if(programs, [&](const NamedProgram& named) { return !telling.contains(named.name); });
  REQUIRE(programs.size() == telling.size());
  return programs;
}

TEST_CASE("loss, hits and gradient are the reference's, also of a microbatch that is not full") {
  for (const NamedProgram& named : all_programs()) {
    const Program& program = named.program;
    constexpr int kCapacity = 3;
    OnGpu gpu(program, kCapacity);
    for (const int samples : {kCapacity, 1}) {
      CAPTURE(named.name);
      CAPTURE(samples);
      const Problem problem(program, kCapacity);
      gpu.load(problem.parameters);
      const auto right = expected(program, problem, samples);
      const LaneResult outcome = gpu.train(problem.microbatch(samples));
      CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-5));
      CHECK(outcome.stats.correct == right.correct);
      CHECK(distance(outcome.gradient, right.gradient) < 1e-5);
      CHECK(outcome.buckets.size() == program.buckets.size());
      CHECK(std::is_sorted(outcome.buckets.begin(), outcome.buckets.end()));
      const auto evaluated = expected(program, problem, samples, false);
      const MicrobatchStats stats = gpu.lane().evaluate(problem.microbatch(samples));
      CHECK(stats.loss == doctest::Approx(evaluated.loss).epsilon(1e-5));
      CHECK(stats.correct == evaluated.correct);
    }
  }
}

TEST_CASE("so they are where a token comes more often than a block sums, and less often in the next one") {
  constexpr int kCapacity = 200;
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  OnGpu gpu(program, kCapacity);
  for (const std::size_t rare : {2, 5, 3, 1}) {  // the third time as a graph
    CAPTURE(rare);
    Problem problem(program, kCapacity);
    for (std::size_t i = 0; i < problem.tokens.size(); ++i)
      if (i % 5 >= rare) problem.tokens[i] = 4;
    gpu.load(problem.parameters);
    const LaneResult outcome = gpu.train(problem.microbatch(kCapacity));
    CHECK(distance(outcome.gradient, expected(program, problem, kCapacity).gradient) < 1e-5);
  }
}

TEST_CASE("in bf16 they are near it, and further away than rounding once would be") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    Program program = named.program;
    program.bf16 = true;
    OnGpu gpu(program, 3);
    const Problem problem(program, 3);
    gpu.load(problem.parameters);
    const auto right = expected(named.program, problem, 3);
    const LaneResult outcome = gpu.train(problem.microbatch(3));
    CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(2e-2));
    const double away = distance(outcome.gradient, right.gradient);
    // If rounding changes the largest element of a window, its gradient goes elsewhere.
    const bool pools = std::ranges::any_of(
        program.nodes, [](const Node& node) { return std::holds_alternative<MaxPool2d>(node.op); });
    CHECK(away < (pools ? 0.25 : 4e-2));
    CHECK(away > 1e-4);
  }
}

TEST_CASE("the same bits in every order of threads, blocks and streams, and in every run") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    Program program = named.program;
    program.bf16 = true;
    const Problem problem(program, 2);
    const auto outcome = [&] {
      OnGpu gpu(program, 2);
      gpu.load(problem.parameters);
      const LaneResult first = gpu.train(problem.microbatch(2));
      CHECK(same_bits(first, gpu.train(problem.microbatch(2))));
      return first;
    };
    const LaneResult wanted = outcome();
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const cuda::testing::OtherOrderOfStreams order(seed);
      CHECK(same_bits(wanted, outcome()));
    }
  }
}

TEST_CASE("recomputing what a block needs gives the bits of keeping it") {
  for (const bool bf16 : {false, true}) {
    ModelConfig config = tiny_gpt2();
    config.dropout = 0.25;
    Program keeping = gpt2_program(config, 7, 13);
    config.gradient_checkpointing = true;
    Program again = gpt2_program(config, 7, 13);
    keeping.bf16 = again.bf16 = bf16;
    const Problem problem(keeping, 3);
    OnGpu kept(keeping, 3), recomputed(again, 3);
    kept.load(problem.parameters);
    recomputed.load(problem.parameters);
    CHECK(same_bits(kept.train(problem.microbatch(3)), recomputed.train(problem.microbatch(3))));
  }
}

TEST_CASE("a lane is blind to what it computed before, and to how far the host is ahead") {
  Program program = gpt2_program(tiny_gpt2(), 7, 13);
  program.bf16 = true;
  OnGpu gpu(program, 3), fresh(program, 3);
  std::vector<Problem> problems;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) problems.emplace_back(program, 3, seed);
  for (OnGpu* each : {&gpu, &fresh}) each->load(problems[0].parameters);
  // Without waits between them; the host's memory of each is overwritten at once.
  const std::size_t size = kStatisticsFloats + program.size;
  std::vector<Buffer> outs;
  for (const Problem& problem : problems) {
    outs.push_back(gpu.arithmetic().allocate(Where::kDevice, size));
    Problem copy = problem;
    gpu.lane().train(copy.microbatch(3), outs.back().data(), [](int) {});
    std::ranges::fill(copy.tokens, 0);
    std::ranges::fill(copy.targets, 0);
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    CAPTURE(i);
    std::vector<float> host(size);
    gpu.arithmetic().copy(gpu.lane().stream(), host.data(), outs[i].data(), size);
    gpu.lane().stream().wait();
    const LaneResult there{.stats = {.loss = host[0], .correct = host[1]},
                           .gradient = {host.begin() + kStatisticsFloats, host.end()},
                           .buckets = {}};
    CHECK(same_bits(there, fresh.train(problems[i].microbatch(3))));
  }
}

TEST_CASE("microbatches launched as a graph are those launched kernel by kernel") {
  for (NamedProgram& named : telling_programs()) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      named.program.bf16 = bf16;
      constexpr int kCapacity = 2;
      OnGpu as_graph(named.program, kCapacity);
      OnGpu one_by_one(named.program, kCapacity, {.graphs = false});
      for (std::uint64_t i = 1; i <= 4; ++i) {
        CAPTURE(i);
        // Other samples, other parameters in the same place, another number of real rows.
        const Problem problem(named.program, kCapacity, i);
        as_graph.load(problem.parameters);
        one_by_one.load(problem.parameters);
        const Microbatch microbatch = problem.microbatch(i % 2 == 0 ? 1 : kCapacity);
        const cuda::testing::OtherOrderOfStreams order(static_cast<unsigned>(i));
        CHECK(same_bits(as_graph.train(microbatch), one_by_one.train(microbatch)));
        const MicrobatchStats graph = as_graph.lane().evaluate(microbatch),
                              plain = one_by_one.lane().evaluate(microbatch);
        CHECK(std::memcmp(&graph, &plain, sizeof graph) == 0);
      }
    }
  }
}

TEST_CASE("matmuls beside the rest of backward, on however many streams, are those one after the other") {
  for (NamedProgram& named : telling_programs()) {
    CAPTURE(named.name);
    named.program.bf16 = true;
    const Problem problem(named.program, 2);
    std::vector<LaneResult> outcomes;
    for (const int streams : {0, 1, 2, 4}) {
      CAPTURE(streams);
      OnGpu gpu(named.program, 2, {.side_streams = streams});
      gpu.load(problem.parameters);
      for (unsigned seed = 1; seed <= 3; ++seed) {  // the third time as a graph
        const cuda::testing::OtherOrderOfStreams order(seed);
        outcomes.push_back(gpu.train(problem.microbatch(2)));
        CHECK(same_bits(outcomes.front(), outcomes.back()));
      }
    }
  }
}

TEST_CASE("a token or label that the model does not have is named") {
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  OnGpu gpu(program, 2);
  const auto fault = [&](const std::function<void(Problem&)>& spoil) {
    Problem problem(program, 2);
    gpu.load(problem.parameters);
    spoil(problem);
    try {
      gpu.train(problem.microbatch(2));
    } catch (const WorkerError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(fault([](Problem& problem) { problem.tokens[5] = 13; }).find("token 13") != std::string::npos);
  CHECK(fault([](Problem& problem) { problem.targets[9] = -1; }).find("label -1") != std::string::npos);
}

TEST_CASE("rounded weights are what the CPU rounds them to, in evaluations too and after each change") {
  for (const NamedProgram& named : telling_programs())
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      Program plain = named.program;
      plain.bf16 = bf16;
      const Problem problem(plain, 2);
      OnGpu exact(plain, 2);
      for (const Quantization how : {Quantization::kQ8_0, Quantization::kQ4_0}) {
        Program aware = plain;
        aware.quantize_aware = how;
        OnGpu gpu(aware, 2);
        std::vector<float> weights = problem.parameters, rounded(weights.size());
        for (int change = 0; change < 2; ++change) {
          round_matrices(aware, how, weights.data(), rounded.data());
          gpu.load(weights);
          exact.load(rounded);
          CHECK(same_bits(gpu.train(problem.microbatch(2)), exact.train(problem.microbatch(2))));
          CHECK(gpu.lane().evaluate(problem.microbatch(2)).loss ==
                exact.lane().evaluate(problem.microbatch(2)).loss);
          for (float& weight : weights) weight *= 1.25f;
        }
      }
    }
}

// With a teacher of the program's own kind, whose parameters are the problem's in another order.
Program with_teacher(Program program, const Problem& problem) {
  auto teacher = std::make_shared<Teacher>();
  teacher->program = program;
  teacher->parameters = problem.parameters;
  std::ranges::reverse(teacher->parameters);
  std::ranges::for_each(std::span(teacher->parameters).first(program.running), [](float& v) { v = 1; });
  teacher->temperature = 2.5f, teacher->alpha = 0.7f;
  program.teacher = std::move(teacher);
  return program;
}

TEST_CASE("a teacher's part of the loss is the CPU's, in every run, and evaluations have none") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const Problem problem(named.program, 4);
    const Program taught = with_teacher(named.program, problem);
    const auto cpu = make_cpu_device()->make_lane(taught, 4);
    cpu->parameters_changed(problem.parameters.data());
    std::vector<float> wanted(kStatisticsFloats + taught.size);
    OnGpu gpu(taught, 4), untaught(named.program, 4);
    gpu.load(problem.parameters), untaught.load(problem.parameters);
    for (const int samples : {4, 3}) {
      cpu->train(problem.microbatch(samples), wanted.data(), [](int) {});
      const LaneResult first = gpu.train(problem.microbatch(samples));
      CHECK(first.stats.loss == doctest::Approx(wanted[0]).epsilon(1e-5));
      CHECK(first.stats.correct == wanted[1]);
      CHECK(distance(first.gradient, {wanted.begin() + kStatisticsFloats, wanted.end()}) < 2e-5);
      CHECK(first.stats.loss != untaught.train(problem.microbatch(samples)).stats.loss);
      CHECK(same_bits(gpu.train(problem.microbatch(samples)), first));
      CHECK(gpu.lane().evaluate(problem.microbatch(samples)).loss ==
            untaught.lane().evaluate(problem.microbatch(samples)).loss);
    }
    Program narrow = taught;
    narrow.bf16 = true;
    OnGpu rounded(narrow, 4);
    rounded.load(problem.parameters);
    cpu->train(problem.microbatch(4), wanted.data(), [](int) {});
    CHECK(rounded.train(problem.microbatch(4)).stats.loss == doctest::Approx(wanted[0]).epsilon(3e-2));
  }
}

}  // namespace
}  // namespace dtrun::worker::lane_test
