// The launches, multiplications and least traffic of a microbatch of GPT-2 124M in its schedule: the table of
// docs/gpu.md. It is compared, so that a step more, or a vector that moves once more, shows;
// DTRUN_REWRITE_TABLES=1 writes what the schedule says now, to be reviewed as a diff.
#include "worker/schedule/cost.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/worker/model/programs.h"
#include "worker/config/config.h"
#include "worker/model/builder.h"
#include "worker/schedule/step_kind.h"

namespace dtrun::worker::schedule::cost_test {
namespace {

constexpr char kBegin[] = "<!-- a microbatch of GPT-2 124M: begin -->\n";
constexpr char kEnd[] = "<!-- a microbatch of GPT-2 124M: end -->\n";

constexpr int kTokens = 1024;

// As it is shipped.
Program gpt2_124m() {
  const std::string path = DTRUN_SOURCE_DIR "/configs/gpt2_124M.json";
  const Result<JobConfig> parsed = parse_config(dtrun::test::read_text(path), path, {});
  REQUIRE(parsed.ok());
  const JobConfig& config = parsed.value();
  REQUIRE(config.data.sequence_length == kTokens);
  Program program = gpt2_program(config.model, kTokens, config.data.vocab_size);
  program.bf16 = true;
  return program;
}

Schedule schedule_of(const Program& program, int samples) {
  return make_schedule(program, make_plan(program, samples, plan_for_gpu(program.bf16)), samples,
                       {.bf16 = program.bf16, .multiplies = [](const MatmulShape&) { return true; }});
}

struct Row {
  std::string what, part;
  int steps = 0;
  OpCost cost;
};

// In the order of their first steps.
std::vector<Row> rows_of(const Program& program, const Schedule& schedule) {
  std::vector<Row> rows;
  for (const auto* const steps : {&schedule.forward, &schedule.backward}) {
    for (const Step& step : *steps) {
      if (!is_work(step)) continue;
      const OpKind kind = kind_of(program, step);
      auto row = std::ranges::find_if(
          rows, [&](const Row& each) { return each.what == kind.what && each.part == kind.part; });
      if (row == rows.end()) row = rows.insert(row, {.what = kind.what, .part = kind.part, .cost = {}});
      ++row->steps;
      row->cost += cost_of(step);
    }
  }
  return rows;
}

std::string line(const std::string& what, const std::string& part, int steps, const OpCost& cost,
                 double tokens) {
  char text[256];
  std::snprintf(text, sizeof text, "| %s | %s | %d | %.1f | %.1f |\n", what.c_str(), part.c_str(), steps,
                cost.flops / tokens / 1e6, cost.bytes() / tokens / 1e3);
  return text;
}

std::string table() {
  constexpr int kSamples = 64;
  constexpr double kAll = double{kSamples} * kTokens;
  const Program program = gpt2_124m();
  std::string text =
      "| operation | | steps | MFLOP a token | KB a token |\n| --- | --- | --- | --- | --- |\n";
  Row all{.what = "all", .part = "", .cost = {}};
  for (const Row& row : rows_of(program, schedule_of(program, kSamples))) {
    text += line(row.what, row.part, row.steps, row.cost, kAll);
    all.steps += row.steps;
    all.cost += row.cost;
  }
  return text + line(all.what, all.part, all.steps, all.cost, kAll);
}

TEST_CASE("the table of docs/gpu.md is what the schedule says") {
  const std::string path = DTRUN_SOURCE_DIR "/docs/gpu.md";
  const std::string page = dtrun::test::read_text(path);
  const std::size_t begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t from = begin + sizeof kBegin - 1;
  const std::string now = table();
  if (std::getenv("DTRUN_REWRITE_TABLES") != nullptr)
    dtrun::test::write_text(path, page.substr(0, from) + now + page.substr(end));
  else
    CHECK(page.substr(from, end - from) == now);
}

// By which tensor cores work at their full rate: cuBLAS guide 2.1.11. Rows of each matrix are whole pieces of
// 16 bytes, begin at one, and so do the next.
bool misaligned(const MatmulShape& shape) {
  const int element = shape.bf16 ? 2 : 4, wide = narrow(shape) ? 2 : 4;
  const auto odd = [](std::int64_t row, std::int64_t stride, int alignment, int bytes) {
    return row * bytes % 16 != 0 || stride * bytes % 16 != 0 || alignment % 16 != 0;
  };
  return odd(shape.a_transposed ? shape.m : shape.k, shape.a_stride, shape.a_alignment, element) ||
         odd(shape.b_transposed ? shape.k : shape.n, shape.b_stride, shape.b_alignment, element) ||
         odd(shape.n, shape.c_stride, shape.c_alignment, wide);
}

TEST_CASE("no matmul of GPT-2, of 50257 classes, has a size that tensor cores are slow at") {
  const Program program = gpt2_124m();
  for (const int samples : {4, 64}) {
    const Schedule schedule = schedule_of(program, samples);
    for (const auto* const steps : {&schedule.forward, &schedule.evaluate, &schedule.backward}) {
      for (const Step& step : *steps) {
        const auto* const multiply = std::get_if<Matmul>(&step.work);
        if (multiply == nullptr) continue;
        CAPTURE(multiply->shape.m);
        CAPTURE(multiply->shape.n);
        CAPTURE(multiply->shape.k);
        CHECK_FALSE(misaligned(multiply->shape));
      }
    }
  }
}

// Made for a CPU: values in rows, logits some rows at a time.
Schedule cpu_schedule_of(const Program& program, int samples) {
  return make_schedule(
      program, make_plan(program, samples), samples,
      {.multiplies = [](const MatmulShape& s) { return s.epilogue <= Epilogue::kBias; }, .side_streams = 0});
}

double flops_of(const Schedule& schedule) {
  double flops = 0;
  for (const auto* const list : {&schedule.forward, &schedule.backward})
    for (const Step& step : *list) flops += cost_of(step).flops;
  return flops;
}

TEST_CASE("a microbatch multiplies what the model needs on any device, and attention's scores once more") {
  for (const int samples : {1, 4}) {
    Program program = gpt2_program({.type = ModelType::kGpt2, .vocab_size = 50304}, kTokens, 50257);
    double needed = 0;
    for (const Node& node : program.nodes) {
      // Forward, and the gradients of both factors.
      if (const auto* const linear = std::get_if<Linear>(&node.op))
        needed += 3 * 2.0 * samples * kTokens * linear->in_features * linear->out_features;
      // Two matmuls forward, and five backward, each with half of the pairs of tokens.
      if (const auto* const attention = std::get_if<Attention>(&node.op))
        needed += 7 * 2.0 * samples * (kTokens * (kTokens + 1) / 2) * attention->width;
    }
    CHECK(flops_of(cpu_schedule_of(program, samples)) == doctest::Approx(needed).epsilon(1e-9));
    program.bf16 = true;
    CHECK(flops_of(schedule_of(program, samples)) == doctest::Approx(needed).epsilon(1e-9));
  }
}

// By what the steps are; the last of several that are the same.
std::map<std::string, OpCost> costs(const Program& program, int samples) {
  std::map<std::string, OpCost> costs;
  cpu_schedule_of(program, samples).each_step([&](const Step& step) {
    const TimedOp op = timed_op(program, step);
    costs[op.kind.what + ", " + op.kind.part] = op.cost;
  });
  return costs;
}

TEST_CASE("a convolution is a product per output value, and nobody wants the gradient of an image") {
  const auto all = costs(convnet_program(), 2);
  const std::string first = "Conv2d 5x5, 1x28x28 -> 20x24x24", second = "Conv2d 5x5, 20x12x12 -> 20x8x8";
  CHECK(all.at(first + " + ReLU, forward").flops == 2.0 * 2 * 20 * 24 * 24 * 25);
  CHECK(all.at(first + ", weight gradient").flops == all.at(first + " + ReLU, forward").flops);
  CHECK_FALSE(all.contains(first + ", input gradient"));
  CHECK(all.at(second + " + ReLU, forward").flops == 2.0 * 2 * 20 * 8 * 8 * 20 * 25);
  CHECK(all.at(second + ", input gradient").flops == all.at(second + " + ReLU, forward").flops);
  const OpCost linear = all.at("Linear 320 -> 50, forward");
  CHECK(linear.flops == 2.0 * 2 * 320 * 50);
  CHECK(linear.bytes() == 4.0 * (2 * 320 + 320 * 50 + 50 + 2 * 50));
  CHECK(all.at("Linear 320 -> 50, weight gradient").bytes() == 4.0 * (2 * 50 + 2 * 320 + 320 * 50));
  CHECK(all.at("MaxPool2d 2, 20x24x24, forward").flops == 0);
}

TEST_CASE("attention looks at each earlier token once for its score and once for its value") {
  ProgramBuilder builder(
      {.input = SampleSpec::Input::kTokens, .shape = {1, 1, 3}, .targets = 3, .classes = 100});
  Value value = builder.embedding(builder.input(), "wte", 100, 8, NormalInit{0.02f});
  value = builder.attention(builder.linear(value, "qkv", 24), 2);
  const auto all = costs(builder.finish(builder.linear(value, "head", 100)), 5);
  CHECK(all.at("Attention, 2 heads of 4, 3 tokens, forward").flops == 2.0 * 5 * (1 + 2 + 3) * 8 * 2);
  CHECK(all.at("Attention, 2 heads of 4, 3 tokens, backward").flops == 2.0 * 5 * (1 + 2 + 3) * 8 * 5);
  // Only the rows of 15 tokens are read, not the whole table.
  CHECK(all.at("Embedding 100 x 8, forward").bytes() == 4.0 * (15 + 15 * 8 + 15 * 8));
}

}  // namespace
}  // namespace dtrun::worker::schedule::cost_test
