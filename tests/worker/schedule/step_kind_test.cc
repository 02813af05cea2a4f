// The names of a schedule's steps for people.
#include "worker/schedule/step_kind.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/worker/model/programs.h"

namespace dtrun::worker::schedule::step_kind_test {
namespace {

constexpr int kSamples = 3, kTokens = 7, kClasses = 13;

Schedule schedule_of(const Program& program) {
  return make_schedule(program, make_plan(program, kSamples, plan_for_gpu(program.bf16)), kSamples,
                       {.bf16 = program.bf16, .multiplies = [](const MatmulShape&) { return true; }});
}

// How many steps each kind has.
std::map<std::string, int> told(const Program& program) {
  const Schedule schedule = schedule_of(program);
  std::map<std::string, int> steps;
  const auto add = [&](const std::vector<Step>& some) {
    for (const Step& step : some) {
      if (!is_work(step)) continue;
      const OpKind kind = kind_of(program, step);
      CHECK_FALSE(kind.what.empty());
      CHECK_FALSE(kind.part.empty());
      ++steps[kind.what + ", " + kind.part];
    }
  };
  add(schedule.forward);
  add(schedule.backward);
  return steps;
}

TEST_CASE("the steps of a gpt2 by their names") {
  ModelConfig config = tiny_gpt2();
  config.dropout = 0;
  const Program program = gpt2_program(config, kTokens, kClasses);
  const auto steps = told(program);
  const std::string width = std::to_string(config.n_embd), wide = std::to_string(4 * config.n_embd);
  const int layers = config.n_layer;
  const auto has = [&](const std::string& name, int count) {
    CAPTURE(name);
    REQUIRE(steps.contains(name));
    CHECK(steps.at(name) == count);
  };
  has("Linear " + width + " -> " + wide + " + GELU, forward", layers);
  has("Linear " + width + " -> " + wide + ", input gradient", layers);
  has("Linear " + width + " -> " + wide + ", weight gradient", layers);
  has("Linear " + wide + " -> " + width + ", forward", layers);
  has("Linear " + wide + " -> " + width + " and GELU, input gradient", layers);
  has("Linear " + width + " -> 13, forward", 1);
  has("Linear " + width + " -> 13, input gradient", 1);
  has("Linear " + width + " -> 13, weight gradient", 1);
  has("Loss of 13 classes, forward, backward", 1);
  has("Add + LayerNorm " + width + ", forward", 2 * layers);
  has("LayerNorm " + width + ", backward", 2 * layers + 1);
  has("Embedding 13 x " + width + " + positions, forward", 1);
  has("Embedding 13 x " + width + ", backward", 1);
}

TEST_CASE("what is computed again is told apart from what is computed once") {
  ModelConfig config = tiny_gpt2();
  config.gradient_checkpointing = true;
  const auto steps = told(gpt2_program(config, kTokens, kClasses));
  int again = 0;
  for (const auto& [name, count] : steps) again += name.ends_with(", forward again") ? count : 0;
  CHECK(again > 0);
}

TEST_CASE("the steps of every program have a name and a part") {
  for (NamedProgram& named : planned_programs()) {
    CAPTURE(named.name);
    for (const bool bf16 : {false, true}) {
      named.program.bf16 = bf16;
      CHECK(told(named.program).size() >= 3);
    }
  }
}

}  // namespace
}  // namespace dtrun::worker::schedule::step_kind_test
