// The CPU device as the trainer sees it: right, repeatable, and blind to everything but parameters and
// samples.
#include "worker/device/cpu/planned/lane.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/support/worst.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/base/error.h"
#include "worker/config/bf16.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/planned/generator.h"
#include "worker/device/device.h"
#include "worker/device/lane_team.h"
#include "worker/model/builder.h"
#include "worker/model/plan.h"

namespace dtrun::lane_test {

using namespace dtrun::worker;

namespace {

struct Outcome {
  MicrobatchStats stats;
  std::vector<float> gradient;
  bool operator==(const Outcome& other) const {  // bitwise
    return std::memcmp(&stats, &other.stats, sizeof(stats)) == 0 &&
           gradient.size() == other.gradient.size() &&
           std::memcmp(gradient.data(), other.gradient.data(), gradient.size() * sizeof(float)) == 0;
  }
};

Outcome train(Lane& lane, const Program& program, const Microbatch& microbatch) {
  // Each value must be written.
  std::vector<float> out(kStatisticsFloats + program.size, std::numeric_limits<float>::quiet_NaN());
  lane.train(microbatch, out.data(), [](int) {});
  lane.stream().wait();
  CHECK(out[2] == microbatch.samples * program.sample.targets);
  CHECK(std::all_of(out.begin() + 3, out.begin() + kStatisticsFloats, [](float v) { return v == 0; }));
  return {.stats = {.loss = out[0], .correct = out[1]},
          .gradient = {out.begin() + kStatisticsFloats, out.end()}};
}

Outcome train(const Program& program, int capacity, const Problem& problem, int samples) {
  const auto lane = make_cpu_device()->make_lane(program, capacity);
  lane->parameters_changed(problem.parameters.data());
  return train(*lane, program, problem.microbatch(samples));
}

reference::Result expected(const Program& program, const Problem& problem, int samples) {
  const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
  return reference::run(program, parameters, problem.microbatch(samples));
}

// The program, and if the processor has it the same of bf16.
std::vector<Program> in_each_format(Program program) {
  std::vector<Program> programs{program};
  program.bf16 = true;
  if (matmul::bf16_kernels() != nullptr) programs.push_back(std::move(program));
  return programs;
}

bool is_pool(const Node& node) { return std::holds_alternative<MaxPool2d>(node.op); }
bool is_batch_norm(const Node& node) { return std::holds_alternative<BatchNorm>(node.op); }

// Length of the difference, relative to the right vector's.
double distance(const std::vector<float>& gradient, const std::vector<double>& right) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    difference += std::pow(gradient[i] - right[i], 2);
    length += std::pow(right[i], 2);
  }
  return std::sqrt(difference / length);
}

constexpr PlanFor kGroups{.group = 16}, kRows{};

double largest_error(const Outcome& outcome, const reference::Result& right) {
  double scale = 0, error = 0;
  for (std::size_t i = 0; i < right.gradient.size(); ++i) {
    scale = std::max(scale, std::abs(right.gradient[i]));
    error = dtrun::test::worst_of(error, std::abs(outcome.gradient[i] - right.gradient[i]));
  }
  return error / scale;
}

}  // namespace

TEST_CASE("a team whose lanes cannot be made says why, and leaves no thread behind") {
  Program program = convnet_program();
  program.nodes.pop_back();
  const auto device = make_cpu_device();
  CHECK_THROWS_WITH_AS(LaneTeam(*device, program, 3, 16),
                       "this program cannot be planned: its loss follows no linear layer", WorkerError);
}

TEST_CASE("a planned lane's loss, hits and gradient are the reference's, at every capacity") {
  for (const NamedProgram& named : planned_programs()) {
    const Program& program = named.program;
    for (const int capacity : {1, 3, 8}) {
      for (const int samples : {1, capacity}) {
        CAPTURE(named.name);
        CAPTURE(capacity);
        CAPTURE(samples);
        const Problem problem(program, capacity);
        const auto right = expected(program, problem, samples);
        const Outcome outcome = train(program, capacity, problem, samples);
        CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-5));
        CHECK(outcome.stats.correct == right.correct);
        CHECK(largest_error(outcome, right) < 1e-5);
        const auto lane = make_cpu_device()->make_lane(program, capacity);
        lane->parameters_changed(problem.parameters.data());
        const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
        const auto evaluated = reference::run(program, parameters, problem.microbatch(samples), false);
        const MicrobatchStats stats = lane->evaluate(problem.microbatch(samples));
        CHECK(stats.loss == doctest::Approx(evaluated.loss).epsilon(1e-5));
        CHECK(stats.correct == evaluated.correct);
      }
    }
  }
}

TEST_CASE(
    "logits of so many classes that some rows at a time are made give the reference's loss and gradient") {
  ProgramBuilder builder({.shape = {1, 1, 3}, .classes = 400'000});
  const Value hidden = builder.linear(builder.input(), "hidden", 2);
  const Program program = builder.finish(builder.linear(hidden, "head", 400'000));
  REQUIRE(make_plan(program, 5).logit_rows == 2);
  const Problem problem(program, 5);
  const Outcome outcome = train(program, 5, problem, 5);
  const auto right = expected(program, problem, 5);
  CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-6));
  CHECK(outcome.stats.correct == right.correct);
  CHECK(largest_error(outcome, right) < 1e-5);
}

TEST_CASE("a planned lane of bf16 is near fp64, and rounds what is multiplied and nothing else") {
  if (matmul::bf16_kernels() == nullptr) {
    MESSAGE("skipped: " << bf16_refusal());
    return;
  }
  std::vector<NamedProgram> programs = planned_programs();
  programs.push_back({"convnet", convnet_program({2, 18, 17}, {.type = ModelType::kConvnet})});
  for (const NamedProgram& named : programs) {
    Program program = named.program;
    program.bf16 = true;
    for (const int capacity : {1, 3, 8}) {
      // Of values that are nearly equal a max-pool may pick another one once they are rounded; and the
      // variance of few values, by which a batch norm divides, is small now and then.
      const double most = std::ranges::any_of(program.nodes, is_pool)                          ? 0.2
                          : capacity == 1 && std::ranges::any_of(program.nodes, is_batch_norm) ? 0.1
                                                                                               : 2e-2;
      CAPTURE(named.name);
      CAPTURE(capacity);
      const Problem problem(program, capacity);
      const auto exact = expected(named.program, problem, capacity),
                 right = expected(program, problem, capacity);
      const Outcome outcome = train(program, capacity, problem, capacity);
      // Values differ by fp32's rounding before they are rounded, so now and then one becomes the next bf16.
      CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-4));
      CHECK(outcome.stats.loss == doctest::Approx(exact.loss).epsilon(1e-2));
      const double rounding = distance({right.gradient.begin(), right.gradient.end()}, exact.gradient);
      CHECK(rounding > 5e-4);
      CHECK(rounding < most);
      CHECK(distance(outcome.gradient, exact.gradient) < most);
      CHECK(distance(outcome.gradient, right.gradient) < rounding / 20);
      const auto lane = make_cpu_device()->make_lane(program, capacity);
      lane->parameters_changed(problem.parameters.data());
      const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
      const auto evaluated = reference::run(program, parameters, problem.microbatch(capacity), false);
      CHECK(lane->evaluate(problem.microbatch(capacity)).loss ==
            doctest::Approx(evaluated.loss).epsilon(1e-4));
    }
  }
}

TEST_CASE("loss, hits and gradient are the reference's for every network and capacity") {
  for (const NamedProgram& named : test_programs()) {
    const Program& program = named.program;
    for (const int capacity : {1, 2, 5, 16, 20}) {
      CAPTURE(named.name);
      CAPTURE(capacity);
      const Problem problem(program, capacity);
      const auto right = expected(program, problem, capacity);
      const Outcome outcome = train(program, capacity, problem, capacity);
      CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-5));
      CHECK(outcome.stats.correct == right.correct);
      CHECK(largest_error(outcome, right) < 1e-5);
    }
  }
}

TEST_CASE("images in groups and in rows agree with the reference at capacities that get the other layout") {
  for (const NamedProgram& named : test_programs()) {
    const Program& program = named.program;
    CAPTURE(named.name);
    const Problem problem(program, 16);
    for (const PlanFor& layout : {kGroups, kRows}) {
      for (const int rows : {2, 9}) {
        const auto lane = make_planned_lane(program, rows, layout, {});
        lane->parameters_changed(problem.parameters.data());
        const Outcome outcome = train(*lane, program, problem.microbatch(rows));
        const auto right = expected(program, problem, rows);
        CHECK(outcome.stats.loss == doctest::Approx(right.loss).epsilon(1e-5));
        CHECK(largest_error(outcome, right) < 1e-5);
      }
    }
  }
}

TEST_CASE("the device lays images in groups from 3 on and in rows below, which round differently") {
  const Program program = convnet_program();
  for (const int rows : {2, 3}) {
    CAPTURE(rows);
    const Problem problem(program, rows);
    auto run = [&](const std::unique_ptr<Lane>& lane) {
      lane->parameters_changed(problem.parameters.data());
      return train(*lane, program, problem.microbatch(rows));
    };
    const Outcome in_groups = run(make_planned_lane(program, rows, kGroups, {})),
                  in_rows = run(make_planned_lane(program, rows, kRows, {}));
    REQUIRE_FALSE(in_groups == in_rows);
    CHECK(train(program, rows, problem, rows) == (rows < 3 ? in_rows : in_groups));
  }
}

TEST_CASE("evaluating gives training's loss and hits") {
  const Program program = convnet_program();
  const Problem problem(program, 16);
  const auto lane = make_cpu_device()->make_lane(program, 16);
  lane->parameters_changed(problem.parameters.data());
  const Outcome outcome = train(*lane, program, problem.microbatch(13));
  const MicrobatchStats stats = lane->evaluate(problem.microbatch(13));
  CHECK(stats.loss == outcome.stats.loss);
  CHECK(stats.correct == outcome.stats.correct);
}

TEST_CASE("rows that are not real add nothing, whatever lies in them") {
  const Program program = convnet_program();
  for (const int capacity : {2, 5, 12, 16, 64}) {
    CAPTURE(capacity);
    Problem zeros(program, capacity), rubbish(program, capacity);
    const int samples = capacity * 3 / 5;
    std::fill(zeros.values.begin() + samples * program.sample.shape.size(), zeros.values.end(), 0.0f);
    std::fill(rubbish.values.begin() + samples * program.sample.shape.size(), rubbish.values.end(), NAN);
    std::fill(rubbish.targets.begin() + samples, rubbish.targets.end(), -1);
    const Outcome outcome = train(program, capacity, zeros, samples);
    CHECK(largest_error(outcome, expected(program, zeros, samples)) < 1e-5);
    CHECK(train(program, capacity, rubbish, samples) == outcome);
  }
}

TEST_CASE("a microbatch gives the same bits again, after others, in another lane and from other addresses") {
  const Program program = convnet_program();
  for (const int capacity : {2, 16, 64}) {
    CAPTURE(capacity);
    const Problem problem(program, capacity), other(program, capacity, 6);
    const Outcome first = train(program, capacity, problem, capacity);
    const auto lane = make_cpu_device()->make_lane(program, capacity);
    lane->parameters_changed(other.parameters.data());
    train(*lane, program, other.microbatch(capacity));
    lane->parameters_changed(problem.parameters.data());
    for (const std::size_t shift : {0, 1, 5}) {  // floats
      std::vector<float> moved(problem.values.size() + shift);
      std::copy(problem.values.begin(), problem.values.end(), moved.begin() + shift);
      Microbatch microbatch = problem.microbatch(capacity);
      microbatch.values = moved.data() + shift;
      CHECK(train(*lane, program, microbatch) == first);
    }
  }
}

TEST_CASE("a planned lane gives the same bits again, after others, in another lane, and recomputing") {
  ModelConfig config = tiny_gpt2();
  config.dropout = 0.1;
  for (const Program& program : in_each_format(gpt2_program(config, 7, 13))) {
    CAPTURE(program.bf16);
    config.gradient_checkpointing = true;
    Program recomputing = gpt2_program(config, 7, 13);
    recomputing.bf16 = program.bf16;
    const Problem problem(program, 8), other(program, 8, 6);
    const Outcome first = train(program, 8, problem, 5);
    const auto lane = make_cpu_device()->make_lane(program, 8);
    lane->parameters_changed(other.parameters.data());
    train(*lane, program, other.microbatch(8));
    lane->evaluate(other.microbatch(3));
    lane->parameters_changed(problem.parameters.data());
    CHECK(train(*lane, program, problem.microbatch(5)) == first);
    CHECK(train(recomputing, 8, problem, 5) == first);
    CHECK(train(recomputing, 16, problem, 5) == first);
    // Other random numbers, another result.
    Microbatch next = problem.microbatch(5);
    ++next.key.number;
    CHECK_FALSE(train(*lane, program, next) == first);
  }
}

TEST_CASE("a generator, token by token, makes the logits that the lane's loss is of") {
  for (const bool dropout : {false, true}) {
    ModelConfig config = tiny_gpt2();
    config.dropout = dropout ? 0.3 : 0;
    const Program program = gpt2_program(config, 7, 13);
    const Problem problem(program, 2);
    const auto lane = make_cpu_device()->make_lane(program, 2);
    lane->parameters_changed(problem.parameters.data());
    Generator generator(program, problem.parameters);
    CHECK(generator.longest() == 7);
    double loss = 0;
    for (int n = 0; n < 2; ++n) {
      generator.clear();
      for (int t = 0; t < 7; ++t) {
        const auto logits = generator.next(problem.tokens[n * 7 + t]);
        CHECK(generator.size() == t + 1);
        double sum = 0;
        for (const float logit : logits) sum += std::exp(logit);
        loss += std::log(sum) - logits[problem.targets[n * 7 + t]];
      }
    }
    CHECK(loss == doctest::Approx(lane->evaluate(problem.microbatch(2)).loss).epsilon(1e-6));
  }
  CHECK_THROWS_AS(Generator(convnet_program(), {}), WorkerError);
}

TEST_CASE("lanes in two threads at once give the same bits as one alone") {
  std::vector<Program> programs = in_each_format(gpt2_program(tiny_gpt2(), 7, 13));
  programs.push_back(convnet_program());
  for (const Program& program : programs)
    for (const int capacity : {4, 16}) {
      const Problem problem(program, capacity);
      const Outcome alone = train(program, capacity, problem, capacity);
      std::vector<int> differences(2, 0);
      std::vector<std::thread> threads;
      for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
          const auto lane = make_cpu_device()->make_lane(program, capacity);
          lane->parameters_changed(problem.parameters.data());
          for (int run = 0; run < 10; ++run)
            differences[t] += !(train(*lane, program, problem.microbatch(capacity)) == alone);
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(differences == std::vector<int>{0, 0});
    }
}

TEST_CASE("a bucket is announced once, in order, when it is final and before the layers in front have run") {
  const ModelConfig gpt2{
      .type = ModelType::kGpt2, .n_layer = 6, .n_head = 4, .n_embd = 64, .n_positions = 16};
  for (const Program& program : {convnet_program(), gpt2_program(gpt2, 16, 256)})
    for (const int capacity : {4, 16}) {
      CAPTURE(capacity);
      const Problem problem(program, capacity);
      const Outcome whole = train(program, capacity, problem, capacity);
      const auto lane = make_cpu_device()->make_lane(program, capacity);
      lane->parameters_changed(problem.parameters.data());
      std::vector<float> out(kStatisticsFloats + program.size, -7.0f);
      const auto gradient = std::span(out).subspan(kStatisticsFloats);
      int next = 0;
      lane->train(problem.microbatch(capacity), out.data(), [&](int bucket) {
        CHECK(bucket == next++);
        const VectorRange& b = program.buckets[bucket];
        CHECK(std::equal(gradient.begin() + b.begin, gradient.begin() + b.end,
                         whole.gradient.begin() + b.begin));
        // But for a tied weight, of which the first part is there from the beginning.
        const std::size_t tied = program.model == "gpt2" ? program.parameters[0].size : 0;
        if (b.begin > tied)
          CHECK(std::all_of(gradient.begin() + tied, gradient.begin() + b.begin,
                            [](float v) { return v == -7.0f; }));
      });
      CHECK(next == static_cast<int>(program.buckets.size()));
    }
}

TEST_CASE("parameters that have become NaN give a loss that is NaN") {
  for (const NamedProgram& named : planned_programs())
    for (const Program& each : in_each_format(named.program)) {
      CAPTURE(named.name);
      CAPTURE(each.bf16);
      Problem problem(each, 4);
      problem.parameters.back() = NAN;  // of the last layer, which every target needs
      CHECK(std::isnan(train(each, 4, problem, 4).stats.loss));
    }
  const Program program = convnet_program();
  for (const int capacity : {4, 16}) {
    Problem problem(program, capacity);
    problem.parameters[3] = NAN;
    CHECK(std::isnan(train(program, capacity, problem, capacity).stats.loss));
  }
}

TEST_CASE("a token or a target that the model does not have is refused by number") {
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  Problem problem(program, 2);
  problem.tokens[9] = 13;
  CHECK_THROWS_WITH_AS(
      train(program, 2, problem, 2),
      "the data has token 13, but the model has 13 tokens, numbered from 0; check /data/path", WorkerError);
  problem.tokens[9] = 0, problem.targets[13] = -1;
  CHECK_THROWS_AS(train(program, 2, problem, 2), WorkerError);
}

TEST_CASE("a label that is no class is refused by number") {
  const Program program = convnet_program();
  Problem problem(program, 4);
  problem.targets[2] = 10;
  CHECK_THROWS_WITH_AS(
      train(program, 4, problem, 4),
      "the data has a sample with label 10, but the model has 10 classes, numbered from 0; check "
      "/data/path",
      WorkerError);
}

}  // namespace dtrun::lane_test
