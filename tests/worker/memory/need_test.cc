// The sum is held against a real process in tests/e2e/memory_test.cc.
#include "worker/memory/need.h"

#include <doctest/doctest.h>

#include "proto/core/text.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker::need_test {
namespace {

constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

struct Question {
  JobConfig config;
  DatasetFacts data;
  Spread spread;

  Question() {
    config.model.type = ModelType::kGpt2;
    config.model.n_layer = 12, config.model.n_head = 12, config.model.n_embd = 768;
    config.train.optim = OptimizerType::kAdamW;
    config.train.global_batch_size = 32, config.train.micro_batch_size = 8;
    data = {.spec = {.input = SampleSpec::Input::kTokens,
                     .shape = {1, 1, 1024},
                     .targets = 1024,
                     .classes = 50257},
            .train = 10000,
            .test = 1000};
  }
  TrainingJob job() const { return training_job(config, data, spread); }
  MemoryNeed need() const { return memory_need(job()); }
  Status with(std::uint64_t bytes) const { return check_memory(job(), {.bytes = bytes, .by = "the test"}); }
  // The need of the whole node, of which one worker writes checkpoints.
  std::uint64_t limit() const {
    return static_cast<std::uint64_t>(spread.workers_of_node) * (need().total() - data.bytes) + data.bytes +
           checkpoint_bytes(config, data).value();
  }
};

Question lock_step() {
  Question question;
  question.config.model = {};
  question.config.model.type = ModelType::kResnet;
  question.config.train.micro_batch_size = 4;
  question.config.train.batch_norm_group = 0;
  question.data.spec = {.shape = {1, 28, 28}, .classes = 10};
  return question;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE(
    "GPT-2 small has its well-known parameters, AdamW two values for each, and a save one copy of all") {
  const Question gpt2;
  const MemoryNeed need = gpt2.need();
  CHECK(need.parameters == 124'439'808 * 4ULL);
  CHECK(need.optimizer == 2 * need.parameters);
  CHECK(checkpoint_bytes(gpt2.config, gpt2.data).value() == 3 * need.parameters);
  // Four microbatches one after the other have at most three partial sums: 0+1, 2, 3.
  CHECK(need.gradients == 3 * need.parameters);
}

TEST_CASE("lanes have activations of their own, recomputation saves most of them") {
  Question question;
  const MemoryNeed one = question.need();
  question.spread.lanes = 2;
  CHECK(question.need().activations == 2 * one.activations);
  question.spread.lanes = 1;
  question.config.model.gradient_checkpointing = true;
  CHECK(question.need().activations < one.activations / 2);
  CHECK(question.need().parameters == one.parameters);
}

TEST_CASE("with peers there is the step's sum too, and fewer microbatches of one's own have fewer sums") {
  Question question;
  question.config.train.micro_batch_size = 32;
  CHECK(question.need().gradients == question.need().parameters);  // the only microbatch
  question.config.train.micro_batch_size = 16;
  question.spread.world_size = 2;
  CHECK(question.need().gradients == 2 * question.need().parameters);
}

TEST_CASE("microbatches in lock step have a lane and a gradient each, more of them with fewer workers") {
  Question question = lock_step();
  const MemoryNeed all = question.need();
  question.config.train.batch_norm_group = 1;
  const MemoryNeed apart = question.need();
  CHECK(all.activations == (1 + 8) * apart.activations);
  CHECK(all.gradients == 8 * all.parameters);
  question.config.train.batch_norm_group = 0;
  question.spread.world_size = 2;
  CHECK(question.need().activations == (1 + 4) * apart.activations);
}

TEST_CASE("microbatches in lock step ask for as many workers as their memory takes, others for one") {
  Question question = lock_step();
  const auto least = [&](std::uint64_t bytes, bool of_each = false) {
    return least_workers(question.job(), {.bytes = bytes, .by = "the test", .of_each = of_each});
  };
  question.spread.world_size = 3;
  const std::uint64_t for_three = question.limit();
  question.spread.world_size = 2;
  const std::uint64_t for_two = question.limit();
  CHECK(for_three < for_two);
  question.spread.world_size = 100;
  CHECK(least(for_three) == 3);
  CHECK(least(for_two - 1) == 3);
  CHECK(least(for_two) == 2);
  CHECK(least(2 * for_two) == 1);
  question.spread.workers_of_node = 2;
  CHECK(least(2 * for_two) == 1);    // the two of a node, and one of them alone, which has their part
  CHECK(least(for_two, true) == 2);  // but not of each
  CHECK(least(2 * for_two, true) == 1);
  question.spread = {.lanes = 1, .workers_of_node = 1, .world_size = 1};
  CHECK(contains(question.with(for_three).message(), "; it fits with --nnodes 3"));
  question.config.train.batch_norm_group = 1;
  CHECK(least(for_two) == 1);
}

TEST_CASE("local replicas have parameters and slots of their own, a sum, and what is kept of two syncs") {
  Question question;
  const MemoryNeed plain = question.need();
  const std::uint64_t slots = plain.optimizer / plain.parameters;
  question.config.train.local_replicas = 4;
  question.config.train.outer_momentum = 0.9;
  const MemoryNeed alone = question.need(), four = [&] {
    question.spread.world_size = 4;
    return question.need();
  }();
  CHECK(alone.parameters == 5 * plain.parameters);
  CHECK(alone.optimizer == (1 + 4 * slots) * plain.parameters);
  CHECK(alone.gradients > plain.gradients);
  CHECK(four.parameters == 2 * plain.parameters);
  CHECK(four.optimizer == (1 + slots) * plain.parameters);
  CHECK(four.copies == 2 * (2 + slots) * plain.parameters);
}

TEST_CASE("a teacher has parameters in each worker and activations in each lane") {
  Question question;
  question.spread.lanes = 2;
  const MemoryNeed alone = question.need();
  const auto teacher = std::make_shared<Teacher>();
  teacher->program = question.job().program;
  const MemoryNeed taught =
      memory_need(training_job(question.config, question.data, question.spread, teacher));
  CHECK(taught.parameters == 2 * alone.parameters);
  const std::uint64_t of_teacher = taught.activations - alone.activations;
  CHECK(of_teacher > 0);
  CHECK(of_teacher < alone.activations / 8);  // 12 blocks, none of which backward needs
}

TEST_CASE("what outlives a worker is two copies of parameters and slots, and none unless it is asked for") {
  Question question;
  CHECK(question.need().copies == 0);
  question.config.recovery.in_memory_checkpoint_steps = 100;
  const MemoryNeed need = question.need();
  CHECK(need.copies == 2 * (need.parameters + need.optimizer));
  question.spread = {.workers_of_node = 3, .world_size = 3};
  const auto on_gpus = [&](std::uint64_t bytes) {
    return check_host_memory(question.job(), {.bytes = bytes, .by = "the test"});
  };
  CHECK(on_gpus(3 * need.copies).ok());
  const Status refused = on_gpus(3 * need.copies - 1);
  CHECK(refused.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(refused.message(), "keeps 2.8 GiB in the host's memory for each of 3 workers"),
                refused.message());
}

TEST_CASE("a job is refused from one byte less than it needs, with the numbers") {
  Question question;
  question.spread = {.lanes = 2, .workers_of_node = 3, .world_size = 3};
  question.data.bytes = kGibibyte;  // the node's, once
  CHECK(question.with(question.limit()).ok());
  const Status refused = question.with(question.limit() - 1);
  CHECK(refused.exit_code() == kExitConfig);
  const std::string text = question.with(2 * kGibibyte).message();
  CHECK_MESSAGE(contains(text, "not enough memory: 3 workers need " + in_gibibytes(question.limit()) +
                                   ", and this machine can give 2.0 GiB (the test). Each has parameters "),
                text);
  CHECK_MESSAGE(contains(text, ", activations " + in_gibibytes(question.need().activations) +
                                   ", data of all 1.0 GiB; "),
                text);
}

TEST_CASE("a thousand layers are planned in a moment") {
  Question question;
  question.config.model.n_layer = 1000;
  CHECK(question.need().parameters > 26 * kGibibyte);
}

}  // namespace
}  // namespace dtrun::worker::need_test
