// A schedule is looked at without a GPU: a step reads only memory that was written, steps that must not run
// at the same time never do, nothing is launched twice, and neighbours that can be one step are.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/worker/model/programs.h"
#include "worker/base/error.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::schedule::lowering_test {
namespace {

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.place.space == b.place.space && a.place.offset < b.place.offset + b.bytes &&
         b.place.offset < a.place.offset + a.bytes;
}
bool any_overlap(const std::vector<ByteRange>& some, const std::vector<ByteRange>& others) {
  return std::ranges::any_of(some, [&](const ByteRange& a) {
    return std::ranges::any_of(others, [&](const ByteRange& b) { return overlap(a, b); });
  });
}

struct Made {
  Program program;
  Plan plan;
  Schedule schedule;
};

Made make(
    const Program& program, int samples, bool bf16, int side_streams = 1,
    const std::function<bool(const MatmulShape&)>& multiplies = [](const MatmulShape&) { return true; },
    bool forward_only = false) {
  PlanFor device = plan_for_gpu(bf16);
  device.forward_only = forward_only;
  Made made{.program = program, .plan = make_plan(program, samples, device), .schedule = {}};
  made.schedule = make_schedule(made.program, made.plan, samples,
                                {.bf16 = bf16, .multiplies = multiplies, .side_streams = side_streams});
  return made;
}

// Of a CPU, whose values lie in rows.
Made make_for_cpu(const Program& program, int samples) {
  Made made{.program = program, .plan = make_plan(program, samples), .schedule = {}};
  made.schedule = make_schedule(
      made.program, made.plan, samples,
      {.multiplies = [](const MatmulShape& shape) { return shape.epilogue <= Epilogue::kBiasRelu; },
       .side_streams = 0,
       .attention_adds = true,
       .pools_with_relu = true});
  return made;
}

std::vector<NamedProgram> all_programs() {
  std::vector<NamedProgram> programs = planned_programs();
  for (NamedProgram& named : test_programs()) programs.push_back(std::move(named));
  return programs;
}

// before[i][j]: step j is done before step i begins.
std::vector<std::vector<bool>> happens_before(const std::vector<Step>& steps) {
  std::vector<std::vector<bool>> before(steps.size(), std::vector<bool>(steps.size(), false));
  std::map<int, int> last;  // of each stream
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    std::vector<int> direct = steps[i].after;
    if (last.contains(steps[i].stream)) direct.push_back(last[steps[i].stream]);
    for (const int j : direct) {
      before[i][j] = true;
      for (int k = 0; k < j; ++k) before[i][k] = before[i][k] || before[j][k];
    }
    last[steps[i].stream] = i;
  }
  return before;
}

// Bytes of each space that were written.
class Written {
 public:
  void add(const ByteRange& extent) {
    std::vector<bool>& bytes = spaces_[extent.place.space];
    bytes.resize(std::max(bytes.size(), extent.place.offset + extent.bytes));
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(extent.place.offset), extent.bytes, true);
  }
  bool has(const ByteRange& extent) {
    const std::vector<bool>& bytes = spaces_[extent.place.space];
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(extent.place.offset);
    return extent.place.offset + extent.bytes <= bytes.size() &&
           std::all_of(from, from + static_cast<std::ptrdiff_t>(extent.bytes),
                       [](bool written) { return written; });
  }

 private:
  std::map<Space, std::vector<bool>> spaces_;
};

bool is_made_by_steps(Space space) { return space == Space::kArena || space == Space::kGradient; }

template <typename W>
int count(const std::vector<Step>& steps) {
  return static_cast<int>(
      std::ranges::count_if(steps, [](const Step& step) { return std::holds_alternative<W>(step.work); }));
}
int count(const std::vector<Step>& steps, Epilogue epilogue) {
  return static_cast<int>(std::ranges::count_if(steps, [&](const Step& step) {
    const auto* const multiply = std::get_if<Matmul>(&step.work);
    return multiply != nullptr && multiply->shape.epilogue == epilogue;
  }));
}

TEST_CASE("whatever a step reads was written, and no byte lies outside of the arena") {
  for (const NamedProgram& named : all_programs()) {
    const Made all[] = {make(named.program, 3, false), make(named.program, 3, true),
                        make_for_cpu(named.program, 3)};
    for (const Made& made : all) {
      CAPTURE(named.name);
      CAPTURE(&made - all);
      const Schedule& schedule = made.schedule;
      for (const auto* const last : {&schedule.evaluate, &schedule.backward}) {
        Written written;
        for (const auto* const steps : {&schedule.forward, last}) {
          for (const Step& step : *steps) {
            for (const ByteRange& read : step.reads) {
              CAPTURE(step.node);
              CAPTURE(step.work.index());
              if (is_made_by_steps(read.place.space)) CHECK(written.has(read));
            }
            for (const ByteRange& extent : step.writes) {
              if (extent.place.space == Space::kArena)
                CHECK(extent.place.offset + extent.bytes <= schedule.arena);
              if (extent.place.space == Space::kGradient)
                CHECK(extent.place.offset + extent.bytes <= named.program.size * sizeof(float));
              written.add(extent);
            }
          }
        }
        CHECK(written.has({{Space::kStatistics, 0}, kStatisticsFloats * sizeof(float)}));
        if (last == &schedule.backward)
          CHECK(written.has({{Space::kGradient, 0}, named.program.size * sizeof(float)}));
      }
    }
  }
}

void check_in_place(const Schedule& schedule) {
  schedule.each_step([](const Step& step) {
    CAPTURE(step.node);
    CAPTURE(step.work.index());
    const auto* const multiply = std::get_if<Matmul>(&step.work);
    for (const ByteRange& write : step.writes) {
      for (const ByteRange& read : step.reads) {
        if (!overlap(write, read)) continue;
        CHECK(write.place == read.place);
        CHECK(write.bytes == read.bytes);
        if (multiply != nullptr) CHECK((multiply->shape.add && write.place == multiply->c));
      }
      for (const ByteRange& other : step.writes) CHECK((&other == &write || !overlap(write, other)));
    }
  });
}

TEST_CASE("a step writes over what it reads only in place, and a matmul only what it adds to") {
  for (const NamedProgram& named : all_programs()) {
    for (const int samples : {1, 3}) {
      CAPTURE(named.name);
      check_in_place(make(named.program, samples, true).schedule);
    }
  }
}

TEST_CASE("a model that only goes forward has the same steps up to its loss, in less memory, and no others") {
  const auto all = [](const MatmulShape&) { return true; };
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const Schedule trained = make(named.program, 3, true).schedule,
                   forward = make(named.program, 3, true, 0, all, true).schedule;
    CHECK(forward.forward.size() == trained.forward.size());
    CHECK(forward.evaluate.size() == trained.evaluate.size());
    CHECK(forward.backward.empty());
    CHECK(forward.arena <= trained.arena);
    check_in_place(forward);
  }
}

// The order of steps follows from what they say.
TEST_CASE("a matmul says of all its rows that it writes them, and the loss of its gradient") {
  const auto says = [](const Step& step, const Place& place, std::size_t bytes) {
    return std::ranges::any_of(
        step.writes, [&](const ByteRange& write) { return write.place == place && write.bytes >= bytes; });
  };
  for (const NamedProgram& named : all_programs()) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      make(named.program, 3, bf16).schedule.each_step([&](const Step& step) {
        CAPTURE(step.node);
        if (const auto* const multiply = std::get_if<Matmul>(&step.work))
          CHECK(says(step, multiply->c, bytes_of(multiply->shape).c));
        if (const auto* const loss = std::get_if<CrossEntropy>(&step.work))
          CHECK(says(step, loss->logits, loss->rows * loss->stride * (bf16 ? 2 : 4)) == loss->gradient);
      });
    }
  }
}

TEST_CASE("steps of different streams that touch the same bytes are ordered") {
  for (const NamedProgram& named : all_programs()) {
    for (const int side_streams : {0, 1, 3}) {
      CAPTURE(named.name);
      CAPTURE(side_streams);
      const Made made = make(named.program, 3, true, side_streams);
      for (const auto* const steps :
           {&made.schedule.forward, &made.schedule.evaluate, &made.schedule.backward}) {
        const std::vector<std::vector<bool>> before = happens_before(*steps);
        int side = 0;
        for (std::size_t i = 0; i < steps->size(); ++i) {
          const Step& step = (*steps)[i];
          const bool ready = std::holds_alternative<Ready>(step.work);
          CHECK((ready ? step.stream == side_streams + 1 : step.stream <= side_streams));
          side += step.stream > 0 && !ready;
          for (std::size_t j = 0; j < i; ++j) {
            const Step& earlier = (*steps)[j];
            if (any_overlap(step.writes, earlier.writes) || any_overlap(step.writes, earlier.reads) ||
                any_overlap(step.reads, earlier.writes)) {
              CAPTURE(i);
              CAPTURE(j);
              CHECK(before[i][j]);
            }
          }
          for (const int j : step.after) CHECK((*steps)[j].awaited);
        }
        if (steps == &made.schedule.backward) CHECK((side > 0) == (side_streams > 0));
      }
    }
  }
}

TEST_CASE("at the end of backward the lane's own stream is behind all others") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const std::vector<Step> steps = make(named.program, 3, true, 2).schedule.backward;
    const std::vector<std::vector<bool>> before = happens_before(steps);
    REQUIRE(std::holds_alternative<Join>(steps.back().work));
    CHECK(steps.back().stream == 0);
    for (std::size_t j = 0; j + 1 < steps.size(); ++j) CHECK(before.back()[j]);
  }
}

// As a graph they begin with the lane's own stream.
TEST_CASE("no other stream begins before the lane's own, and none but that one goes forward") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const Schedule schedule = make(named.program, 3, true, 2).schedule;
    const std::vector<std::vector<bool>> before = happens_before(schedule.backward);
    for (std::size_t i = 0; i < schedule.backward.size(); ++i)
      if (schedule.backward[i].stream > 0) CHECK(before[i][0]);
    for (const auto* const steps : {&schedule.forward, &schedule.evaluate})
      for (const Step& step : *steps) CHECK(step.stream == 0);
  }
}

TEST_CASE("nothing but the end waits for a bucket to be told of") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const std::vector<Step> steps = make(named.program, 3, true, 2).schedule.backward;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i)
      for (const int before : steps[i].after) CHECK_FALSE(std::holds_alternative<Ready>(steps[before].work));
  }
}

TEST_CASE("each bucket is told of once, in order, when all of it is written") {
  for (const NamedProgram& named : all_programs()) {
    CAPTURE(named.name);
    const Made made = make(named.program, 2, true);
    const std::vector<Step>& steps = made.schedule.backward;
    int next = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto* const ready = std::get_if<Ready>(&steps[i].work);
      if (ready == nullptr) continue;
      CHECK(ready->first_bucket == next);
      next = ready->end_bucket;
      for (std::size_t later = i + 1; later < steps.size(); ++later)
        CHECK_FALSE(any_overlap(steps[later].writes, steps[i].reads));
      last = i;
    }
    CHECK(next == static_cast<int>(named.program.buckets.size()));
    CHECK(any_overlap(steps[last].reads, {{{Space::kStatistics, 0}, kStatisticsFloats * sizeof(float)}}));
  }
}

ModelConfig twelve_layers() {
  return {.type = ModelType::kGpt2, .n_layer = 12, .n_head = 2, .n_embd = 8, .n_positions = 7};
}

TEST_CASE("a GPT-2 is as few steps as its kernels allow") {
  const Program program = gpt2_program(twelve_layers(), 7, 13);
  const Schedule schedule = make(program, 4, true).schedule;
  // Embedding with positions; a layer's four matmuls, attention, two norms, of which all but the first make
  // the residual sum; the last norm with the last sum.
  CHECK(schedule.forward.size() == 1 + 12 * 7 + 1);
  CHECK(count<Elementwise>(schedule.forward) == 0);
  CHECK(count(schedule.forward, Epilogue::kBiasGelu) == 12);
  CHECK(count(schedule.forward, Epilogue::kBias) == 36);
  // Backward of a layer: eight matmuls, attention, two norms. The classifier: three matmuls and the loss.
  // At the end embedding and positions, and the join; notices besides.
  CHECK(count<Matmul>(schedule.backward) == 12 * 8 + 3);
  CHECK(count(schedule.backward, Epilogue::kGeluGradient) == 12);
  CHECK(count(schedule.backward, Epilogue::kColumnSums) == 48);
  CHECK(count<Elementwise>(schedule.backward) == 0);
  CHECK(schedule.backward.size() - count<Ready>(schedule.backward) == 12 * 11 + 4 + 3 + 1);
}

TEST_CASE("what the library cannot do in one goes one by one") {
  const Program program = gpt2_program(twelve_layers(), 7, 13);
  const auto plain = [](const MatmulShape& shape) {
    return shape.epilogue == Epilogue::kNone || shape.epilogue == Epilogue::kBias;
  };
  const Schedule schedule = make(program, 4, true, 1, plain).schedule;
  CHECK(count<Elementwise>(schedule.forward) == 12);
  CHECK(count<Elementwise>(schedule.backward) == 12);
  CHECK(count<SumRows>(schedule.backward) == 48 + 1);
  for (const auto* const steps : {&schedule.forward, &schedule.backward})
    for (const Step& step : *steps)
      if (const auto* const multiply = std::get_if<Matmul>(&step.work)) CHECK(plain(multiply->shape));
}

TEST_CASE("matmuls are told how their operands are aligned") {
  for (const NamedProgram& named : all_programs()) {
    for (const bool bf16 : {false, true}) {
      const Made made = make(named.program, 3, bf16);
      for (const auto* const steps :
           {&made.schedule.forward, &made.schedule.evaluate, &made.schedule.backward}) {
        for (const Step& step : *steps) {
          const auto* const multiply = std::get_if<Matmul>(&step.work);
          if (multiply == nullptr) continue;
          const auto offset = [](const Place& place) {
            return place.offset + (place.space == Space::kGradient ? kStatisticsFloats * sizeof(float) : 0);
          };
          CHECK(offset(multiply->a) % multiply->shape.a_alignment == 0);
          CHECK(offset(multiply->b) % multiply->shape.b_alignment == 0);
          CHECK(offset(multiply->c) % multiply->shape.c_alignment == 0);
          if (multiply->bias) CHECK(offset(multiply->bias) % multiply->shape.bias_alignment == 0);
        }
      }
    }
  }
}

TEST_CASE("a program that a GPU cannot run is refused") {
  ProgramBuilder net({.input = SampleSpec::Input::kTokens, .shape = {1, 1, 4}, .targets = 4, .classes = 5});
  const Value x = net.linear(net.embedding(net.input(), "e", 5, 4, ConstantInit{1}), "qkv", 12);
  const Value y = net.attention(x, 2);
  const Program program = net.finish(net.linear(net.add(y, net.linear(x, "other", 4)), "c", 5));
  CHECK_THROWS_AS(make(program, 2, true), WorkerError);
}

}  // namespace
}  // namespace dtrun::worker::schedule::lowering_test
