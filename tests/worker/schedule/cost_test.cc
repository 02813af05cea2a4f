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
#include "worker/model/cost.h"
#include "worker/schedule/step_kind.h"

namespace dtrun::worker::schedule {
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
      if (std::holds_alternative<Ready>(step.work) || std::holds_alternative<Join>(step.work)) continue;
      const OpKind kind = kind_of(program, step, false);
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

// worker/model/cost.h counts the model's work on any device.
TEST_CASE("a microbatch multiplies what the model needs, and attention's scores once more") {
  for (const int samples : {4, 64}) {
    Program program = gpt2_program({.type = ModelType::kGpt2, .vocab_size = 50304}, kTokens, 50257);
    program.bf16 = true;
    double steps = 0, model = 0, scores = 0;
    const Schedule schedule = schedule_of(program, samples);
    for (const auto* const list : {&schedule.forward, &schedule.backward})
      for (const Step& step : *list) steps += cost_of(step).flops;
    for (int node = 0; node < static_cast<int>(program.nodes.size()); ++node) {
      const NodeCost cost = cost_of(program, node, samples);
      model += cost.forward.flops + cost.backward.flops;
      if (std::holds_alternative<Attention>(program.nodes[static_cast<std::size_t>(node)].op))
        scores += cost.forward.flops / 2;
    }
    CHECK(steps == doctest::Approx(model + scores).epsilon(1e-9));
  }
}

}  // namespace
}  // namespace dtrun::worker::schedule
