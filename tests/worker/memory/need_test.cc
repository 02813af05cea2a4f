// The sum is held against a real process in tests/e2e/memory_test.cc.
#include "worker/memory/need.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "worker/base/error.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {
namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;

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
  MemoryNeed need(bool saves = true) const {
    return memory_need(config, make_program(config.model, data.spec), data, spread, saves);
  }
  Status with(std::uint64_t bytes) const {
    return check_memory(config, data, spread, {.bytes = bytes, .by = "the test"});
  }
  // The need of the whole node.
  std::uint64_t limit() const {
    return need(true).total() + (spread.workers_of_node - 1) * need(false).total();
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE(
    "GPT-2 small has its well-known parameters, AdamW two values for each, and a save one copy of all") {
  const Question gpt2;
  const MemoryNeed need = gpt2.need();
  CHECK(need.parameters == 124'439'808 * 4ULL);
  CHECK(need.optimizer == 2 * need.parameters);
  CHECK(need.checkpoint == 3 * need.parameters);
  CHECK(checkpoint_bytes(gpt2.config, gpt2.data).value() == need.checkpoint);
  // Four microbatches one after the other have at most three partial sums: 0+1, 2, 3.
  CHECK(need.gradients == 3 * need.parameters);
}

TEST_CASE("the parts make the whole") {
  Question question;
  question.config.recovery.in_memory_checkpoint_steps = 1;
  const MemoryNeed need = question.need();
  std::uint64_t sum = 0;
  for (const auto& part : parts_of(need)) {
    CHECK_MESSAGE(part.second > 0, part.first);
    sum += part.second;
  }
  CHECK(parts_of(need).size() * sizeof(std::uint64_t) ==
        sizeof(MemoryNeed) + sizeof(std::uint64_t) * static_cast<std::size_t>(need.data == 0));
  CHECK(sum == need.total());
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

TEST_CASE("peers send their partial sums, and fewer microbatches of one's own make fewer") {
  Question question;
  question.config.train.micro_batch_size = 32;
  CHECK(question.need().gradients == question.need().parameters);  // the only microbatch
  question.config.train.micro_batch_size = 16;
  question.spread.world_size = 2;
  CHECK(question.need().gradients == 3 * question.need().parameters);  // and the peer's, and the sum
  question.config.train.reduction = ReductionType::kRing;
  CHECK(question.need().gradients == 2 * question.need().parameters);
}

TEST_CASE("microbatches in lock step have a lane and a gradient each, more of them with fewer workers") {
  Question question;
  question.config.model = {};
  question.config.model.type = ModelType::kResnet;
  question.config.train.micro_batch_size = 4;
  question.data.spec = {.shape = {1, 28, 28}, .classes = 10};
  const MemoryNeed apart = question.need();
  question.config.train.batch_norm_group = 0;
  const MemoryNeed all = question.need();
  CHECK(all.activations == (1 + 8) * apart.activations);
  CHECK(all.gradients == 8 * all.parameters);
  question.spread.world_size = 2;
  CHECK(question.need().activations == (1 + 4) * apart.activations);
}

TEST_CASE("microbatches in lock step ask for as many workers as their memory takes, others for one") {
  Question question;
  question.config.model = {};
  question.config.model.type = ModelType::kResnet;
  question.config.train.micro_batch_size = 4;
  question.config.train.batch_norm_group = 0;
  question.data.spec = {.shape = {1, 28, 28}, .classes = 10};
  const auto least = [&](std::uint64_t bytes, bool of_each = false) {
    return least_workers(question.config, question.data, question.spread,
                         {.bytes = bytes, .by = "the test", .of_each = of_each});
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

TEST_CASE("local replicas have parameters and slots of their own, and a sum") {
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
  CHECK(four.checkpoint == (2 + 4 * slots) * plain.parameters);
  CHECK(four.in_memory_checkpoint == 2 * (2 + slots) * plain.parameters);
}

TEST_CASE("a teacher has parameters in each worker and activations in each lane") {
  Question question;
  question.spread.lanes = 2;
  const MemoryNeed alone = question.need();
  Program program = make_program(question.config.model, question.data.spec);
  const auto teacher = std::make_shared<Teacher>();
  teacher->program = program;
  program.teacher = teacher;
  const MemoryNeed taught = memory_need(question.config, program, question.data, question.spread, true);
  CHECK(taught.parameters == 2 * alone.parameters);
  const std::uint64_t of_teacher = taught.activations - alone.activations;
  CHECK(of_teacher > 0);
  CHECK(of_teacher < alone.activations / 8);  // 12 blocks, none of which backward needs
  CHECK(taught.total() - alone.total() == alone.parameters + of_teacher);
  // The launcher counts it too.
  CHECK(question.with(alone.total()).ok());
  CHECK_FALSE(check_memory(question.config, question.data, question.spread,
                           {.bytes = alone.total(), .by = "the test"}, teacher)
                  .ok());
}

TEST_CASE("rounded weights are a lane's own") {
  Question question;
  question.spread.lanes = 2;
  Program program = make_program(question.config.model, question.data.spec);
  program.quantize_aware = QuantizeAware::kInt4;
  CHECK(memory_need(question.config, program, question.data, question.spread, true).activations ==
        question.need().activations + 2 * question.need().parameters);
}

TEST_CASE("who does not save has given back what it started from") {
  Question question;
  CHECK(question.need(false).checkpoint == 0);
  question.config.train.micro_batch_size = 32;  // one vector of gradients, where the copy took three
  const MemoryNeed need = question.need(false);
  CHECK(need.checkpoint == 2 * need.parameters);
}

TEST_CASE("what outlives a worker is two copies of parameters and slots, and none unless it is asked for") {
  Question question;
  const MemoryNeed without = question.need();
  CHECK(without.in_memory_checkpoint == 0);
  question.config.recovery.in_memory_checkpoint_steps = 100;
  const MemoryNeed need = question.need(false);
  CHECK(need.in_memory_checkpoint == 2 * (need.parameters + need.optimizer));
  CHECK(question.need().total() == without.total() + need.in_memory_checkpoint);
  const std::string way_out = question.with(without.total()).message();
  CHECK_MESSAGE(contains(way_out, " recovery.in_memory_checkpoint_steps=0"), way_out);
  const auto refused = [&](std::uint64_t bytes) {
    return check_host_memory(question.config, question.data, {.workers_of_node = 3, .world_size = 3},
                             {.bytes = bytes, .by = "the test"});
  };
  CHECK(refused(3 * need.in_memory_checkpoint).ok());
  const Status status = refused(3 * need.in_memory_checkpoint - 1);
  CHECK(status.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(status.message(), "keeps 3.0 GB in the host's memory for each of 3 workers"),
                status.message());
}

TEST_CASE(
    "local replicas on GPUs have their outer state, what meets and what a checkpoint takes on the host") {
  Question question;
  question.config.train.local_replicas = 2;
  question.config.train.outer_momentum = 0.9;
  question.spread = {.workers_of_node = 2, .world_size = 2};
  const std::uint64_t vector = question.need().parameters / 2;
  const auto refused = [&](std::uint64_t bytes) {
    return check_host_memory(question.config, question.data, question.spread,
                             {.bytes = bytes, .by = "the test"});
  };
  // Parameters and momentum; a sum, what this worker hands in and what the other one sends; for a checkpoint
  // the former and both replicas' slots; of two syncs the former and one replica's.
  const std::uint64_t slots = slot_names(question.config.train).size(),
                      need = 2 * (2 + 3 + 1 + slots + 2 * (2 + (slots - 1) / 2)) * vector;
  CHECK(refused(need + need / 50).ok());
  const Status status = refused(need - need / 50);
  CHECK(status.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(status.message(), "not enough memory: /train/local_replicas keeps "),
                status.message());
  question.config.recovery.in_memory_checkpoint_steps = 100;
  CHECK(contains(refused(need).message(),
                 "/train/local_replicas and /recovery/in_memory_checkpoint_steps keep "));
  question.config.recovery.in_memory_checkpoint_steps = 0;
  question.config.train.local_replicas = 1;
  CHECK(refused(0).ok());
}

TEST_CASE("a job is refused from one byte less than it needs") {
  Question question;
  question.spread = {.lanes = 2, .workers_of_node = 3, .world_size = 3};
  CHECK(question.with(question.limit()).ok());
  const Status refused = question.with(question.limit() - 1);
  CHECK(refused.exit_code() == kExitConfig);
}

TEST_CASE("a refusal has the numbers of each part, and only ways that lead out") {
  Question question;
  question.spread = {.lanes = 4, .workers_of_node = 2, .world_size = 2};
  const std::string text = question.with(20 * kGigabyte).message();
  CHECK_MESSAGE(contains(text, "not enough memory: 2 workers need " + in_gigabytes(question.limit()) +
                                   ", and this machine can give 20.0 GB (the test)"),
                text);
  const MemoryNeed need = question.need();
  CHECK_MESSAGE(contains(text, "activations " + in_gigabytes(need.activations)), text);
  CHECK_MESSAGE(contains(text, "checkpoint " + in_gigabytes(need.checkpoint)), text);
  CHECK_FALSE_MESSAGE(contains(text, "evaluation"), text);  // a few megabytes
  REQUIRE_MESSAGE(contains(text, "it fits with "), text);

  const auto way = [&](const std::string& what) {
    const std::size_t at = text.find(what);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + what.size()));
  };
  Question other = question;
  other.config.train.micro_batch_size = way("train.micro_batch_size=");
  REQUIRE_MESSAGE(other.config.train.micro_batch_size > 0, text);
  CHECK(other.limit() <= 20 * kGigabyte);
  other.config.train.micro_batch_size *= 2;
  CHECK(other.limit() > 20 * kGigabyte);
  other = question;
  other.config.model.gradient_checkpointing = true;
  CHECK(contains(text, "model.gradient_checkpointing=true") == (other.limit() <= 20 * kGigabyte));
  other = question;
  other.spread.lanes = way(" or --lanes ");
  REQUIRE_MESSAGE(other.spread.lanes > 0, text);
  CHECK(other.limit() <= 20 * kGigabyte);
  ++other.spread.lanes;
  CHECK(other.limit() > 20 * kGigabyte);
}

TEST_CASE("where no single change is enough, all together are named, or a larger machine") {
  Question question;
  question.spread = {.lanes = 2, .workers_of_node = 2, .world_size = 2};
  const auto ending = [&](std::uint64_t bytes) {
    const std::string text = question.with(bytes).message();
    return text.substr(text.rfind("; ") + 2);
  };
  const std::string all =
      "train.micro_batch_size=1 model.gradient_checkpointing=true --lanes 1 --nproc_per_node 1";
  CHECK(ending(8 * kGigabyte) == "it fits with " + all);
  CHECK(ending(kGigabyte).starts_with("even with " + all + " it needs "));
  CHECK(ending(kGigabyte).ends_with(": choose a smaller model, or a machine with more memory"));
}

TEST_CASE("a thousand layers are planned in a moment") {
  Question question;
  question.config.model.n_layer = 1000;
  CHECK(question.need().parameters > 28 * kGigabyte);
}

TEST_CASE("bytes are said in megabytes and gigabytes") {
  CHECK(in_gigabytes(0) == "1 MB");
  CHECK(in_gigabytes(87'360'000) == "87 MB");
  CHECK(in_gigabytes(1'260'000'000) == "1.3 GB");
  CHECK(in_gigabytes(123'456'000'000) == "123 GB");
}

}  // namespace
}  // namespace dtrun::worker
