// The built-in trainer on GPUs, end to end: the real dtrun and the real worker, linked with stand-ins for
// CUDA (tests/cuda_on_cpu) in which every kernel runs on the processor, as late and in as odd an order as
// streams and events allow.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/gpu_lab.h"

namespace dtrun::gpu_test {

using namespace dtrun::test;
namespace fs = std::filesystem;

namespace {

// The mlp, which takes the least time, and the others.
enum class Chosen { kMlp, kOthers };

std::vector<Model> chosen_models(Chosen chosen) {
  std::vector<Model> all = models();
  std::erase_if(all, [&](const Model& one) { return (one.name == "mlp") != (chosen == Chosen::kMlp); });
  return all;
}

void divide(Chosen chosen) {
  const Lab lab;
  for (const Model& one : chosen_models(chosen)) {
    CAPTURE(one.name);
    const Ended alone = lab.run(lab.job(one, 1, one.name, 4));
    REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
    CHECK(says(alone, "device: cuda, "));
    CHECK(says(alone, "GPU memory: peak "));
    // The GPU's computation while the host waits counts as math: nobody else takes part.
    const std::size_t at = alone.err.find("% math, ");
    REQUIRE(at != std::string::npos);
    CHECK_MESSAGE(std::stoi(alone.err.substr(at + 8)) < 50, alone.err);
    const Json line = last_train_line(lab.output(one.name));
    CHECK(line["gpu_memory_peak"].get<double>() >= line["gpu_memory_used"].get<double>());
    CHECK(line["gpu_memory_used"].get<double>() > 0);
    for (const int workers : {2, 4, 8}) {
      if (workers == 8 && one.name != "mlp") continue;  // there are two processors
      CAPTURE(workers);
      const std::string name = one.name + " on " + std::to_string(workers);
      const Ended ended =
          lab.run(lab.job(one, workers, name, 4), {"DTRUN_TEST_GPU_ORDER=random:" + std::to_string(workers)});
      REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
      CHECK(!lab.model(name).empty());
      CHECK(lab.model(name) == lab.model(one.name));
    }
  }
}

void disturb(Chosen chosen) {
  const Lab lab;
  constexpr int kForever = 1'000'000'000, kMore = 4;
  for (const Model& one : chosen_models(chosen)) {
    if (one.name == "gpt2 in fp32") continue;
    CAPTURE(one.name);
    const fs::path output = lab.output(one.name);
    const Words steady{"train.lr_scheduler_type=constant"};
    Process job(lab.job(one, 2, one.name, kForever, steady, {"--max_restarts", "1"}),
                lab.variables({"DTRUN_TEST_REST=5000"}));
    REQUIRE_MESSAGE(trains(output, 2), job.err());
    kill(workers_of(job, 2)[1], SIGKILL);
    REQUIRE_MESSAGE(job.wait_for_err("going on with 2 workers"), job.err());
    CHECK(trains(output, steps_done(output) + 2));
    job.signal(SIGTERM);
    CHECK(job.end().exit_code == 143);
    const auto [stopped, bytes] = newest_checkpoint(output);
    const Ended resumed = lab.run(lab.job(one, 3, one.name, stopped + kMore, steady));
    CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
    CHECK(says(resumed, "resumed from step " + std::to_string(stopped)));

    const Ended calm = lab.run(lab.job(one, 1, one.name + " calm", stopped + kMore, steady));
    REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);
    CHECK(lab.model(one.name) == lab.model(one.name + " calm"));
  }
}

}  // namespace

TEST_CASE("the same bytes on 1, 2, 4 and 8 GPUs, and in every order that CUDA leaves open") {
  divide(Chosen::kMlp);
}

TEST_CASE("a kill, and a stop with a resume on another number of GPUs, change no byte") {
  disturb(Chosen::kMlp);
}

TEST_CASE("where there is no room, it says for what, how much, and what would fit") {
  const Lab lab;
  const Model one = models()[0];
  const Ended ended = lab.run(lab.job(one, 1, "out", 4, {"train.micro_batch_size=16", "model.n_embd=128"}),
                              {"DTRUN_TEST_GPU_MEMORY=2000000"});
  CHECK(ended.exit_code == 78);
  CHECK_MESSAGE(
      says(ended, "the GPU has no room for the activations of 16 samples (train.micro_batch_size): "),
      ended.err);
  CHECK_MESSAGE(says(ended, " asked, "), ended.err);
  CHECK_MESSAGE(says(ended, "a train.micro_batch_size of "), ended.err);
}

TEST_CASE("a GPU that fails ends its worker, the job goes on with a new one, and no byte changes") {
  const Lab lab;
  const Model one = models()[0];
  REQUIRE(lab.run(lab.job(one, 2, "calm", 6)).exit_code == 0);
  // Illegal address, and an error of its memory, in the middle of a step.
  for (const char* error : {"700", "214"}) {
    const std::string name = std::string("failed by ") + error;
    const Ended ended = lab.run(lab.job(one, 2, name, 6, {}, {"--max_restarts", "1"}),
                                {std::string("DTRUN_TEST_GPU_FAULT=launch:300:") + error,
                                 "DTRUN_TEST_GPU_FAULT_ONCE=" + lab.output(name + ".once").string()});
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(fs::exists(lab.output(name + ".once")));
    CHECK_MESSAGE(says(ended, "the GPU failed while "), ended.err);
    CHECK(lab.model(name) == lab.model("calm"));
  }
  // Without a restart left it is the job's exit code.
  const Ended ended = lab.run(lab.job(one, 1, "out", 6), {"DTRUN_TEST_GPU_FAULT=launch:300:700"});
  CHECK_MESSAGE(ended.exit_code == 71, ended.err);
  CHECK_MESSAGE(says(ended, "cudaErrorIllegalAddress"), ended.err);
}

TEST_CASE("what a worker finds wrong with its GPU is one line") {
  const Lab lab;
  const Model one = models()[0];
  const auto fault = [&](const Words& variables) {
    const Ended ended = lab.run(lab.job(one, 1, "out", 2), variables);
    CHECK(ended.exit_code == 78);
    return ended.err;
  };
  CHECK(fault({"DTRUN_TEST_GPU_FAULT=every-call:35"}).find("NVIDIA driver") != std::string::npos);
  CHECK(fault({"DTRUN_TEST_GPU_FAULT=every-call:100"}).find("there is no GPU for this worker") !=
        std::string::npos);
  CHECK(fault({"NVIDIA_TF32_OVERRIDE=1"}).find("NVIDIA_TF32_OVERRIDE=1 is set") != std::string::npos);
}

TEST_SUITE("long") {
  TEST_CASE("the same bytes on 1, 2 and 4 GPUs, of the other models") { divide(Chosen::kOthers); }

  TEST_CASE("a kill and a stop change no byte, of the other models") { disturb(Chosen::kOthers); }

  TEST_CASE(
      "all workers killed at once go on from the host's memory, without a checkpoint and to the same bytes") {
    const Lab lab;
    constexpr int kSteps = 8;
    for (const Model& one : models()) {
      if (one.name == "gpt2 in fp32") continue;
      CAPTURE(one.name);
      const std::string name = one.name + " copied";
      const Ended ended = lab.run(
          lab.job(one, 2, name, kSteps, {"train.save_strategy=no", "recovery.in_memory_checkpoint_steps=2"},
                  {"--max_restarts", "1"}),
          lab.stopped(killed_together("updated", {0, 1}, 5), name));
      CHECK_MESSAGE(ended.exit_code == 0, ended.err);
      CHECK_MESSAGE((says(ended, "going on at step 4 of 8 with ") && says(ended, ", from the host's memory")),
                    ended.err);
      CHECK_FALSE(says(ended, "begins again"));
      const Ended calm = lab.run(lab.job(one, 1, one.name, kSteps));
      REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);
      CHECK(lab.model(name) == lab.model(one.name));
    }
  }

  TEST_CASE("local replicas on GPUs: the same bytes whoever computes them, also where workers are killed") {
    const Lab lab;
    const Model one = models()[2];
    const Words replicas{"train.local_replicas=2",   "train.sync_every=4",
                         "train.outer_momentum=0.5", "train.outer_learning_rate=0.7",
                         "train.save_strategy=no",   "recovery.in_memory_checkpoint_steps=4"};
    constexpr int kSteps = 22;
    REQUIRE(lab.run(lab.job(one, 1, "one", kSteps, replicas)).exit_code == 0);
    for (const int workers : {2, 4}) {
      CAPTURE(workers);
      const std::string name = "on " + std::to_string(workers);
      const Ended ended = lab.run(lab.job(one, workers, name, kSteps, replicas));
      REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
      CHECK(lab.model(name) == lab.model("one"));
    }
    // Of two workers with a replica, and of one that has the other alone.
    for (const int lost : {0, 2}) {
      CAPTURE(lost);
      const std::string name = "without " + std::to_string(lost);
      const Ended ended = lab.run(lab.job(one, 3, name, kSteps, replicas, {"--max_restarts", "1"}),
                                  lab.stopped({killed("microbatch", lost, 30)}, name));
      CHECK_MESSAGE(ended.exit_code == 0, ended.err);
      CHECK_MESSAGE(says(ended, "going on at step "), ended.err);
      CHECK(lab.model(name) == lab.model("one"));
    }
  }

  TEST_CASE(
      "batch norms over all microbatches: the same bytes on 1, 2 and 3 GPUs, which wait for a lost worker's "
      "where "
      "their own memory is too small") {
    const Model norms{"resnet",
                      {{"type", "resnet"}, {"stem", "cifar"}, {"depths", {1, 1}}, {"embedding_size", 8}},
                      {{"type", "synthetic"}, {"samples", 600}, {"shape", {1, 12, 12}}}};
    const Words all{"train.batch_norm_group=0"};
    constexpr int kSteps = 6;
    std::string alone;
    {
      const Lab lab;
      for (const int workers : {1, 2, 3}) {
        CAPTURE(workers);
        const std::string name = "on " + std::to_string(workers);
        const Ended ended = lab.run(lab.job(norms, workers, name, kSteps, all));
        REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
        if (workers == 1) alone = lab.model(name);
        CHECK(lab.model(name) == alone);
      }
      CHECK_FALSE(alone.empty());
    }
    const Lab small(", \"memory\": 600000");
    const Ended refused = small.run(small.job(norms, 1, "out", kSteps, all));
    CHECK(refused.exit_code == 78);
    CHECK_MESSAGE(says(refused, "not enough memory: the worker needs "), refused.err);
    CHECK_MESSAGE(says(refused, " (each GPU, NVIDIA H200). "), refused.err);
    const Ended ended = small.run(small.job(norms, 2, "out", kSteps, all, {"--max_restarts", "1"}),
                                  small.stopped({killed("updated", 1, 3)}, "out"));
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK_MESSAGE(says(ended, "going on at step "), ended.err);
    CHECK_MESSAGE(!says(ended, " with 1 worker"), ended.err);  // as it does where there is memory
    CHECK(small.model("out") == alone);
  }

  TEST_CASE("a checkpoint goes from the GPU to the CPU and back, and the change is told") {
    const Lab lab;
    Model one = models()[0];
    one.bf16 = false;
    REQUIRE(lab.run(lab.job(one, 2, "out", 3)).exit_code == 0);
    const Ended cpu = lab.run(lab.job(one, 2, "out", 6, {"device=cpu"}));
    CHECK_MESSAGE(cpu.exit_code == 0, cpu.err);
    CHECK_MESSAGE(says(cpu, "the checkpoint of step 3 was computed on NVIDIA "), cpu.err);
    const Ended back = lab.run(lab.job(one, 2, "out", 9));
    CHECK_MESSAGE(back.exit_code == 0, back.err);
    CHECK_MESSAGE(says(back, "the checkpoint of step 6 was computed on cpu, "), back.err);
    REQUIRE(lab.run(lab.job(one, 1, "calm", 9, {"device=cpu"})).exit_code == 0);
    const double moved = last_train_line(lab.output("out"))["loss"],
                 stayed = last_train_line(lab.output("calm"))["loss"];
    CHECK(moved == doctest::Approx(stayed).epsilon(1e-3));
  }
}

}  // namespace dtrun::gpu_test
