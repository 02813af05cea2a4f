// The launches, multiplications, reads and writes of a lane, step by step, compared with its schedule: a
// kernel too many, or a vector that is read twice, costs time that no other test notices.
#include "tests/cuda_on_cpu/traffic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "proto/core/overloaded.h"
#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/norm.h"
#include "worker/device/cuda/lane/attention.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/schedule/cost.h"

namespace dtrun::worker::cuda::traffic_test {
namespace {

using cuda_on_cpu::Launch;

// The data that the kernels of a step leave for each other, and their arguments beside the schedule's
// operands.
struct Besides {
  std::size_t launches = 1;
  std::size_t between = 0;  // bytes that are written and then read
  std::size_t told = 0;     // bytes that are read
  // Bytes that may be read more than once: those that stay in the caches since many rows read them, or a
  // whole warp.
  std::size_t again = 0;
};

constexpr std::size_t kAnything = SIZE_MAX;

Besides besides(const Step& step) {
  const std::size_t word = sizeof(float);
  return std::visit(
      Overloaded{
          [&](const Normalize& w) { return Besides{.again = 2 * w.width * word}; },
          // The output's gradient is read twice, the second time from the caches.
          [&](const NormalizeBackward& w) {
            const auto d = std::ranges::find(step.reads, w.out_gradient, &ByteRange::place);
            return Besides{.launches = 2,
                           .between = layer_norm_backward_workspace(w.rows, w.width) * word,
                           .again = (w.width + 2 * w.rows) * word + d->bytes};
          },
          [&](const SumRows& w) {
            const std::size_t parts = sum_rows_workspace(w.rows, w.width) * word;
            return Besides{.launches = parts == 0 ? 1u : 2u, .between = parts};
          },
          [&](const AddRow& w) { return Besides{.again = w.width * word}; },
          // Rows of tokens and positions that come more than once; all lanes read the token.
          [&](const Embed&) { return Besides{.again = kAnything}; },
          // How many pieces, and where the last one ends. A second kernel adds those of one token.
          [&](const EmbedBackward& w) {
            const std::size_t sums = embedding_backward_workspace(w.rows, w.width) * word;
            return Besides{.launches = sums == 0 ? 1u : 2u,
                           .between = sums,
                           .told = 3 * word,
                           .again = 3 * (w.rows + 1) * word};
          },
          [&](const AttentionForward&) { return Besides{.again = kAnything}; },
          [&](const AttentionBackward& w) {
            return Besides{
                .launches = 2, .between = attention_statistics(shape_of(w)) * word, .again = kAnything};
          },
          // The number of real rows, twice; each row's loss, and whether it hit. The logits are read twice,
          // the second time from the cache.
          [&](const CrossEntropy& w) {
            return Besides{.launches = 2,
                           .between = 2 * w.rows * word,
                           .told = 2 * word,
                           .again = static_cast<std::size_t>(cost_of(step).read) + word};
          },
          [&](const Elementwise& w) {
            const bool random = w.kind == Elementwise::Kind::kDropout;
            return Besides{.told = random ? sizeof(RandomStream::Words) : 0,
                           .again = random ? sizeof(RandomStream::Words) : 0};
          },
          [&](const Ready&) { return Besides{.launches = 0}; },
          [&](const Join&) { return Besides{.launches = 0}; },
          [&](const auto&) { return Besides{}; },
      },
      step.work);
}

std::string names(std::span<const Launch> launches) {
  std::string text;
  for (const Launch& launch : launches) text += (text.empty() ? "" : ", ") + launch.name;
  return text;
}

void compare(const Step& step, std::span<const Launch> launches) {
  Launch sum;
  for (const Launch& launch : launches) {
    sum.flops += launch.flops;
    sum.read += launch.read, sum.written += launch.written;
    sum.read_again += launch.read_again, sum.written_again += launch.written_again;
  }
  const OpCost cost = cost_of(step);
  const Besides more = besides(step);
  const auto read = static_cast<std::size_t>(cost.read) + more.between + more.told;
  const auto written = static_cast<std::size_t>(cost.written) + more.between;
  CAPTURE(names(launches));
  CAPTURE(step.node);
  CAPTURE(step.work.index());
  if (std::holds_alternative<Embed>(step.work) || std::holds_alternative<EmbedBackward>(step.work)) {
    // Tokens and positions come more than once.
    CHECK(sum.read <= read);
    CHECK(sum.written <= written);
  } else if (std::holds_alternative<AttentionBackward>(step.work)) {
    // Both kernels read the operands.
    CHECK(sum.read >= read);
    CHECK(sum.read <= 2 * read);
    CHECK(sum.written == written);
  } else {
    CHECK(sum.read == read);
    CHECK(sum.written == written);
  }
  CHECK(sum.read_again <= more.again);
  CHECK(sum.written_again == 0);
  // However often a token comes, no thread has more than its share of a piece's rows: a pack of each, and
  // where it is.
  if (std::holds_alternative<EmbedBackward>(step.work))
    for (const Launch& launch : launches)
      CHECK(launch.loaded_by_a_thread <= 128 * (16 + sizeof(std::int32_t)) + 64);
  if (std::holds_alternative<Matmul>(step.work)) CHECK(sum.flops == cost.flops);
}

void compare_microbatch(const Program& program, const Problem& problem, int samples) {
  OnGpu gpu(program, samples, {.graphs = false});
  gpu.load(problem.parameters);
  Matmuls matmuls;
  const Schedule schedule = make_schedule(
      program, make_plan(program, samples, plan_for_gpu(program.bf16)), samples,
      {.bf16 = program.bf16, .multiplies = [&](const MatmulShape& shape) { return matmuls.can(shape); }});
  const Buffer out = gpu.arithmetic().allocate(Where::kDevice, kStatisticsFloats + program.size);
  cuda_on_cpu::list_launches();
  gpu.lane().train(problem.microbatch(samples), out.data(), [](int) {});
  gpu.lane().stream().wait();
  const std::vector<Launch> launches = cuda_on_cpu::listed_launches();

  std::span<const Launch> left(launches);
  const auto take = [&](std::size_t count) {
    REQUIRE(left.size() >= count);
    const std::span<const Launch> taken = left.first(count);
    left = left.subspan(count);
    return taken;
  };
  // To the GPU, and to where kernels look for it. Images become bf16.
  const bool converts = program.bf16 && program.sample.input == SampleSpec::Input::kValues;
  const std::span<const Launch> upload = take(converts ? 3 : 2);
  CHECK(names(upload.first(2)) == "copy, copy");
  CHECK(upload[0].written == upload[1].read);
  for (const auto* const steps : {&schedule.forward, &schedule.backward})
    for (const Step& step : *steps) compare(step, take(besides(step).launches));
  CHECK(names(left) == "");
}

TEST_CASE("a microbatch launches what the schedule has, and moves each byte once") {
  // Shapes like real ones: whole packs of 16 bytes everywhere.
  ModelConfig gpt2{.type = ModelType::kGpt2, .n_layer = 2, .n_head = 2, .n_embd = 64, .n_positions = 48};
  gpt2.vocab_size = 128;
  gpt2.dropout = 0.25;
  ModelConfig mlp{.type = ModelType::kMlp, .hidden_sizes = {64, 32}};
  mlp.activation = ActivationType::kGelu;
  for (const bool bf16 : {false, true}) {
    Program text = gpt2_program(gpt2, 48, 120);
    Program images = make_program(mlp, {.shape = {1, 8, 8}, .classes = 16});
    text.bf16 = images.bf16 = bf16;
    compare_microbatch(text, Problem(text, 4), 4);
    compare_microbatch(images, Problem(images, 16), 16);
  }
}

TEST_CASE("a token that comes often costs no more bytes, and no thread reads all of its rows") {
  constexpr int kSamples = 48;
  ModelConfig gpt2{.type = ModelType::kGpt2, .n_layer = 1, .n_head = 2, .n_embd = 64, .n_positions = 48};
  gpt2.vocab_size = 128;
  Program text = gpt2_program(gpt2, 48, 120);
  text.bf16 = true;
  Problem problem(text, kSamples);
  for (std::size_t i = 0; i < problem.tokens.size(); ++i)
    if (i % 3 != 0) problem.tokens[i] = 7;
  compare_microbatch(text, problem, kSamples);
}

}  // namespace
}  // namespace dtrun::worker::cuda::traffic_test
