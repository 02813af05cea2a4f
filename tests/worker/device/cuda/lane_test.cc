// The GPU's lane against the reference and the CPU's, on the stand-in for a GPU and on one: right, and the
// same bits however streams, blocks and threads are interleaved.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/device/cuda/orders.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/base/error.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker {
namespace {

struct Outcome {
  MicrobatchStats stats;
  std::vector<float> gradient;
  std::vector<int> buckets;  // as they were told of
};

// A lane, and what it works on in device memory.
class OnGpu {
 public:
  OnGpu(const Program& program, int capacity)
      : program_(program),
        parameters_(arithmetic().allocate(Where::kDevice, program.size)),
        lane_(device_->make_lane(program, capacity)) {}

  void load(const std::vector<float>& parameters) {
    arithmetic().copy(lane_->stream(), parameters_.data(), parameters.data(), parameters.size());
    lane_->stream().wait();
    lane_->weights_changed(parameters_.data());
  }

  Outcome train(const Microbatch& microbatch) {
    const std::size_t size = kStatisticsFloats + program_.size;
    const Buffer out = arithmetic().allocate(Where::kDevice, size);
    // Each number must be written.
    std::vector<float> host(size, std::numeric_limits<float>::quiet_NaN());
    arithmetic().copy(lane_->stream(), out.data(), host.data(), size);
    lane_->stream().wait();  // train() may throw
    Outcome outcome;
    lane_->train(microbatch, out.data(), [&](int bucket) { outcome.buckets.push_back(bucket); });
    arithmetic().copy(lane_->stream(), host.data(), out.data(), size);
    lane_->stream().wait();
    CHECK(host[2] == microbatch.samples * program_.sample.targets);
    CHECK(std::all_of(host.begin() + 3, host.begin() + kStatisticsFloats, [](float v) { return v == 0; }));
    outcome.stats = {.loss = host[0], .correct = host[1]};
    outcome.gradient.assign(host.begin() + kStatisticsFloats, host.end());
    return outcome;
  }

  Lane& lane() { return *lane_; }
  Arithmetic& arithmetic() { return device_->arithmetic(); }

 private:
  const std::unique_ptr<Device> device_ = make_cuda_device(0);
  const Program program_;
  const Buffer parameters_;
  const std::unique_ptr<Lane> lane_;
};

bool same_bits(const Outcome& a, const Outcome& b) {
  return std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.gradient.size() == b.gradient.size() &&
         std::memcmp(a.gradient.data(), b.gradient.data(), a.gradient.size() * sizeof(float)) == 0;
}

reference::Result expected(const Program& program, const Problem& problem, int samples,
                           bool training = true) {
  const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
  return reference::run(program, parameters, problem.microbatch(samples), training);
}

// Length of the difference, in lengths of what is right.
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
  for (NamedProgram& named : test_programs())
    if (named.name != "a ReLU before the loss") programs.push_back(std::move(named));
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
      const Outcome outcome = gpu.train(problem.microbatch(samples));
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

TEST_CASE("in bf16 they are near it, and further away than rounding once would be") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    Program program = named.program;
    program.bf16 = true;
    OnGpu gpu(program, 3);
    const Problem problem(program, 3);
    gpu.load(problem.parameters);
    const auto right = expected(named.program, problem, 3);
    const Outcome outcome = gpu.train(problem.microbatch(3));
    CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(2e-2));
    const double away = distance(outcome.gradient, right.gradient);
    // Where rounding changes which element of a window is the largest, its gradient goes elsewhere.
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
      const Outcome first = gpu.train(problem.microbatch(2));
      CHECK(same_bits(first, gpu.train(problem.microbatch(2))));
      return first;
    };
    const Outcome wanted = outcome();
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
  // Nobody waits between them; the host's memory of each is rubbish at once.
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
    const Outcome there{.stats = {.loss = host[0], .correct = host[1]},
                        .gradient = {host.begin() + kStatisticsFloats, host.end()},
                        .buckets = {}};
    CHECK(same_bits(there, fresh.train(problems[i].microbatch(3))));
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

}  // namespace
}  // namespace dtrun::worker
