// A plan is carried out here on memory that only knows whose value each part of it holds: the values that a
// call reads must be there, and no call may overwrite a value that is still needed.
#include "worker/model/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/worker/model/programs.h"
#include "worker/base/error.h"

namespace dtrun::plan_test {

using namespace dtrun::worker;

namespace {

// Values, their gradients, and what nodes keep, as numbers.
constexpr int kGradient = 1000000, kAux = 2000000, kLogits = 3000000;

class Memory {
 public:
  explicit Memory(std::size_t floats) : holds_(floats) {}
  void write(std::size_t offset, std::size_t floats, int what) {
    for (std::size_t i = 0; i < floats; ++i) holds_[offset + i] = {what};
  }
  // The memory keeps its value, which is `what` too.
  void alias(std::size_t offset, std::size_t floats, int what) {
    for (std::size_t i = 0; i < floats; ++i) holds_[offset + i].insert(what);
  }
  bool has(std::size_t offset, std::size_t floats, int what) const {
    return offset <= holds_.size() && floats <= holds_.size() - offset &&
           std::all_of(holds_.begin() + offset, holds_.begin() + offset + floats,
                       [&](const std::set<int>& holds) { return holds.contains(what); });
  }

 private:
  std::vector<std::set<int>> holds_;
};

bool keeps_gradient(const Op& op) {
  return std::holds_alternative<Add>(op) || std::holds_alternative<Flatten>(op) ||
         std::holds_alternative<AddPositions>(op);
}

class Run {
 public:
  Run(const Program& program, int rows, const PlanFor& device = {})
      : program_(program),
        device_(device),
        rows_((static_cast<std::size_t>(rows) + device.group - 1) / device.group * device.group),
        plan_(make_plan(program, rows, device)),
        memory_(plan_.arena) {
    if (device.group > 1) memory_.write(plan_.value[0], size(0), 0);
    for (const Call& call : plan_.forward) forward(call, plan_.value, plan_.aux);
    REQUIRE(!plan_.backward.empty());
    classify(plan_.backward.front());
    if (device.forward_only) return;
    for (std::size_t i = 1; i < plan_.backward.size(); ++i) {
      const Call& call = plan_.backward[i];
      if (call.backward)
        backward(call);
      else
        forward(call, plan_.value_again, plan_.aux_again), ++recomputed;
    }
    std::size_t final = SIZE_MAX;
    for (const Call& call : plan_.backward) {
      if (call.final_from == SIZE_MAX) continue;
      CHECK(call.final_from < final);
      final = call.final_from;
    }
    CHECK(final == 0);
    for (std::size_t i = 0; i < program.parameters.size(); ++i)
      CHECK(written_.contains(i) == !program.parameters[i].running);
  }
  const Plan& plan() const { return plan_; }
  int recomputed = 0;

 private:
  std::size_t size(Value value) const { return rows_ * program_.values[value].size(); }
  std::size_t aux_size(int n) const {
    const Node& node = program_.nodes[n];
    return aux_of(node.op, rows_ * program_.values[node.in[0]].rows, device_) * device_.float_elements;
  }
  void check_value(Value value, std::size_t offset) {
    if (offset == kInput) return;
    CHECK(memory_.has(offset, size(value), value));
  }

  void forward(const Call& call, const std::vector<std::size_t>& place, const std::vector<std::size_t>& aux) {
    const Node& node = program_.nodes[call.node];
    CAPTURE(call.node);
    for (const Value in : node.in)
      if (in != kNoValue) check_value(in, place[in]);
    const std::size_t out = place[node.out];
    if (std::holds_alternative<Flatten>(node.op)) {
      CHECK(out == place[node.in[0]]);
      if (out != kInput) memory_.alias(out, size(node.out), node.out);
    } else {
      memory_.write(out, size(node.out), node.out);
    }
    if (aux_size(call.node) > 0) memory_.write(aux[call.node], aux_size(call.node), kAux + call.node);
  }

  void classify(const Call& call) {
    CHECK(call.node == static_cast<int>(program_.nodes.size()) - 1);
    const Value in = program_.nodes[plan_.classifier].in[0];
    const auto classes = std::get<Linear>(program_.nodes[plan_.classifier].op).out_features;
    const std::size_t all = rows_ * program_.sample.targets;
    CHECK(plan_.logit_width == (device_.whole_logits ? padded_classes(classes) : classes));
    CHECK(plan_.logit_rows <= all);
    if (device_.whole_logits || device_.group > 1) CHECK(plan_.logit_rows == all);
    const std::size_t logits = plan_.logit_rows * plan_.logit_width;
    memory_.write(plan_.logits, logits, kLogits);
    if (call.in[0] != Into::kNone) memory_.write(plan_.gradient[in], size(in), kGradient + in);
    CHECK(memory_.has(plan_.logits, logits, kLogits));
    check_value(in, plan_.value_again[in]);
    write_parameters(plan_.classifier, call);
  }

  void backward(const Call& call) {
    const Node& node = program_.nodes[call.node];
    CAPTURE(call.node);
    const BackwardReads reads = backward_reads(node.op, device_);
    const bool tokens = std::holds_alternative<Embedding>(node.op);
    if (reads.in && !tokens) check_value(node.in[0], plan_.value_again[node.in[0]]);
    if (reads.out) check_value(node.out, plan_.value_again[node.out]);
    if (aux_size(call.node) > 0)
      CHECK(memory_.has(plan_.aux_again[call.node], aux_size(call.node), kAux + call.node));
    const std::size_t out = plan_.gradient[node.out];
    CHECK(memory_.has(out, size(node.out), kGradient + node.out));
    for (const int k : {0, 1}) {
      if (call.in[k] == Into::kNone) continue;
      const Value in = node.in[k];
      const std::size_t place = plan_.gradient[in];
      if (call.in[k] == Into::kAdd) {
        CHECK(memory_.has(place, size(in), kGradient + in));
        CHECK(place != out);
      }
      if (call.in[k] == Into::kShare) CHECK(place == out);
      if (call.in[k] == Into::kShare && keeps_gradient(node.op))
        memory_.alias(place, size(in), kGradient + in);
      else
        memory_.write(place, size(in), kGradient + in);
    }
    write_parameters(call.node, call);
  }

  void write_parameters(int n, const Call& call) {
    for (const std::size_t parameter : parameters_of(program_.nodes[n].op)) {
      CHECK(call.parameters == (written_.contains(parameter) ? Into::kAdd : Into::kWrite));
      written_.insert(parameter);
    }
  }

  const Program& program_;
  const PlanFor device_;
  const std::size_t rows_;
  const Plan plan_;
  Memory memory_;
  std::set<std::size_t> written_;
};

ModelConfig deep(bool gradient_checkpointing) {
  return {.type = ModelType::kGpt2,
          .n_layer = 6,
          .n_head = 2,
          .n_embd = 8,
          .n_positions = 7,
          .dropout = 0.1,
          .gradient_checkpointing = gradient_checkpointing};
}

}  // namespace

TEST_CASE("every value is where a call looks for it, and each parameter gets its gradient") {
  for (const NamedProgram& named : planned_programs()) {
    CAPTURE(named.name);
    for (const int rows : {1, 3}) Run(named.program, rows);
  }
}

TEST_CASE("nor does it fail for a device that keeps more, in smaller elements") {
  for (const std::size_t float_elements : {1, 2}) {
    const PlanFor device{.float_elements = float_elements,
                         .alignment = 64,
                         .whole_logits = true,
                         .attention_keeps_sums = true,
                         .joins_calls = float_elements == 2};
    for (const NamedProgram& named : planned_programs()) {
      CAPTURE(named.name);
      for (const int rows : {1, 3}) {
        const Run run(named.program, rows, device);
        for (const auto& places : {run.plan().value, run.plan().gradient, run.plan().aux})
          for (const std::size_t place : places) CHECK((place >= kInput || place % 64 == 0));
      }
    }
  }
}

TEST_CASE("nor in groups of samples") {
  for (const NamedProgram& named : test_programs()) {
    CHECK(fits_groups(named.program));
    if (named.program.sample.shape.size() > 500) continue;  // slow
    CAPTURE(named.name);
    for (const int rows : {3, 17}) Run(named.program, rows, {.group = 16});
  }
  for (const NamedProgram& named : planned_programs()) CHECK_FALSE(fits_groups(named.program));
}

TEST_CASE("a model that only goes forward is planned alike, in the memory of what is read next") {
  for (const bool joins_calls : {false, true}) {
    const PlanFor device{.joins_calls = joins_calls, .forward_only = true};
    for (const NamedProgram& named : planned_programs()) {
      CAPTURE(named.name);
      const Run run(named.program, 3, device);
      CHECK(run.plan().backward.size() == 1);
    }
  }
  const Program program = gpt2_program(deep(false), 7, 13);
  const std::size_t forward = make_plan(program, 4, {.forward_only = true}).arena;
  CHECK(forward * 8 < make_plan(program, 4).arena);
}

TEST_CASE("no call writes to memory that a later one reads") {
  const SampleSpec image{.shape = {1, 2, 3}, .classes = 4};
  SUBCASE("a dropout behind a ReLU, whose backward reads what the dropout would write over") {
    const ModelConfig mlp{.type = ModelType::kMlp, .hidden_sizes = {5, 6}, .dropout = 0.25};
    Run(make_program(mlp, image), 2);
  }
  ProgramBuilder net(image);
  const Value input = net.flatten(net.input());
  SUBCASE("an addition, to whose first gradient is added before its second one is used") {
    const Value first = net.relu(net.linear(input, "a", 4)), second = net.linear(input, "b", 4);
    const Value other = net.linear(first, "c", 4);
    const Value sum = net.add(net.add(first, second), other);
    Run(net.finish(net.linear(sum, "d", 4)), 2);
  }
  SUBCASE("an addition, whose first gradient is written over before its second one is used") {
    const Value second = net.linear(input, "a", 4), first = net.gelu(net.linear(input, "b", 4));
    Run(net.finish(net.linear(net.add(first, second), "c", 4)), 2);
  }
}

TEST_CASE("recomputation runs what a block needs again, and holds one block's values at a time") {
  const Program keeping = gpt2_program(deep(false), 7, 13), again = gpt2_program(deep(true), 7, 13);
  Run kept(keeping, 4), recomputed(again, 4);
  CHECK(kept.recomputed == 0);
  // All of a block's twelve nodes but the last products and the nodes behind them.
  CHECK(recomputed.recomputed == 6 * 9);
  CHECK(recomputed.plan().arena * 3 < kept.plan().arena);
}

TEST_CASE("memory is used again: a plan takes little more than what backward needs at once") {
  const Program program = gpt2_program(deep(false), 7, 13);
  std::size_t needed = 0;
  for (const Node& node : program.nodes) {
    if (backward_reads(node.op).in && node.in[0] != 0) needed += 4 * program.values[node.in[0]].size();
  }
  CHECK(make_plan(program, 4).arena < needed + needed / 3);
}

TEST_CASE("a program whose loss follows no linear layer is refused") {
  ProgramBuilder net({.shape = {1, 1, 3}, .classes = 3});
  const Program program = net.finish(net.relu(net.linear(net.input(), "a", 3)));
  CHECK_THROWS_AS(make_plan(program, 1), WorkerError);
}

}  // namespace dtrun::plan_test
