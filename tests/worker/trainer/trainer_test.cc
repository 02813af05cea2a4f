#include "worker/trainer/trainer.h"

#include "tests/worker/trainer/jobs.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/model/program.h"
#include "worker/reduction/exchange_plan.h"
#include "worker/trainer/microbatch_input.h"

namespace dtrun::worker::trainer_test {
namespace {

TEST_CASE("the rest of a part-filled microbatch is zero, whatever was there before") {
  const Job job;
  const Datasets data = load_datasets(job.config("unused"));
  const std::size_t size = data.train->spec().shape.size();
  MicrobatchInput input(*data.train, 3);
  const std::vector<std::uint32_t> three{0, 1, 2}, one{5};
  const Microbatch whole = input.fill(three);
  CHECK(whole.samples == 3);
  CHECK(std::any_of(whole.values + size, whole.values + 3 * size, [](float value) { return value != 0; }));
  const Microbatch part = input.fill(one);
  CHECK(part.samples == 1);
  std::vector<float> x(size);
  std::int32_t label = -1;
  data.train->fill(one, {.values = x.data(), .targets = &label});
  CHECK(std::equal(x.begin(), x.end(), part.values));
  CHECK(part.targets[0] == label);
  CHECK(std::all_of(part.values + size, part.values + 3 * size, [](float value) { return value == 0; }));
  CHECK((part.targets[1] == 0 && part.targets[2] == 0));
}

TEST_CASE("the model is the same bytes for any number of workers and lanes, and it learned something") {
  const Job job;
  run_job(job.config("1x1"), 1);
  const std::string model = job.model("1x1");
  const auto wanted = losses(job.metrics("1x1"));
  CHECK(wanted.size() > 20);

  struct Shape {
    int world, lanes;
  };
  for (const Shape shape : {Shape{1, 2}, {1, 3}, {2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
    const std::string output = std::to_string(shape.world) + "x" + std::to_string(shape.lanes);
    CAPTURE(output);
    run_job(job.config(output), shape.world, shape.lanes);
    CHECK(job.model(output) == model);
    CHECK(losses(job.metrics(output)) == wanted);
  }
  CHECK(job.metrics("1x1").find("\"event\":\"end\"") != std::string::npos);
}

TEST_CASE("gradients that go by slices, as from five workers on, give the same bytes too") {
  const Job job;
  const Program program =
      make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10});
  const std::size_t largest = program.buckets[0].end - program.buckets[0].begin;
  CHECK(largest * sizeof(float) * (4 - 1) <= kDirectBytes);
  REQUIRE(largest * sizeof(float) * (5 - 1) > kDirectBytes);
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.max_steps = 12;  // with an epoch's last step of 4 leaves, fewer than workers
    return config;
  };
  run_job(config("one"), 1);
  for (const int world : {5, 7}) {
    CAPTURE(world);
    const std::string output = "sliced" + std::to_string(world);
    run_job(config(output), world);
    CHECK(job.model(output) == job.model("one"));
    CHECK(losses(job.metrics(output)) == losses(job.metrics("one")));
  }
}

TEST_CASE("more workers than microbatches still give the same bytes") {
  const Job job;
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.global_batch_size = 8;
    config.train.max_steps = 40;  // with an epoch's last step of 5 samples in it
    return config;
  };
  run_job(config("one"), 1);
  run_job(config("four"), 4);
  CHECK(job.model("four") == job.model("one"));
}

TEST_CASE("clipping, weight decay, AdamW and a schedule keep the bytes equal too") {
  const Job job;
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.optim = OptimizerType::kAdamW;
    config.train.learning_rate = 0.002;
    config.train.weight_decay = 0.01;
    config.train.max_grad_norm = 0.5;
    config.train.lr_scheduler_type = SchedulerType::kCosine;
    config.train.warmup_steps = 3;
    return config;
  };
  run_job(config("one"), 1, 2);
  run_job(config("three"), 3);
  CHECK(job.model("three") == job.model("one"));
}

TEST_CASE("AdamW decays a replica's weights and leaves its biases as they are") {
  const Job job;
  JobConfig config = job.config("unused");
  config.train.optim = OptimizerType::kAdamW;
  config.train.weight_decay = 0.5;
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1);
  TrainState state = replica.snapshot();
  state.parameters.assign(replica.program.size, 1.0f);
  replica.restore(state);
  std::vector<float> sum(kStatisticsFloats + replica.program.size);  // no gradient
  sum[2] = 1;
  replica.update(update_rule(config.train, 0, 0.1), sum.data());
  const std::vector<float> after = replica.snapshot().parameters;
  for (const Parameter& parameter : replica.program.parameters) {
    CAPTURE(parameter.name);
    const float wanted = parameter.name.ends_with("bias") ? 1.0f : 0.95f;
    const auto values = std::span(after).subspan(parameter.offset, parameter.size);
    CHECK(std::ranges::all_of(values, [&](float value) { return value == wanted; }));
  }
}

TEST_CASE("Nesterov's momentum keeps the bytes equal too, and they are others than without") {
  const Job job;
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.nesterov = output != "plain";
    config.train.max_steps = 12;
    return config;
  };
  run_job(config("one"), 1, 2);
  run_job(config("three"), 3);
  run_job(config("plain"), 1);
  CHECK(job.model("three") == job.model("one"));
  CHECK(job.model("plain") != job.model("one"));
}

TEST_CASE("epochs without their smaller last step have fewer steps, and the same bytes for any world") {
  const Job job;
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.dataloader_drop_last = true;
    return config;
  };
  run_job(config("one"), 1);
  run_job(config("three"), 3);
  CHECK(job.model("three") == job.model("one"));
  CHECK(losses(job.metrics("one")).back()[0] == "\"step\":18");  // 301 samples make 9 steps of 32
  JobConfig too_large = config("none");
  too_large.train.global_batch_size = 304;
  const WorkerError error = refusal(too_large);
  CHECK(error.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(error.what(), "the data has 301 samples, fewer than global_batch_size 304"),
                error.what());
}

TEST_CASE(
    "smoothed labels keep the bytes equal, and are in the loss of an evaluation too, as in transformers") {
  const Job job;
  auto config = [&](const std::string& output) {
    JobConfig config = job.config(output);
    config.train.label_smoothing_factor = output == "plain" ? 0 : 0.2;
    config.train.learning_rate = 1e-12;  // no model is another one for it
    config.train.max_steps = 4;
    return config;
  };
  for (const char* output : {"one", "plain"}) run_job(config(output), 1);
  run_job(config("three"), 3);
  CHECK(job.model("three") == job.model("one"));
  const auto smoothed = losses(job.metrics("one")), plain = losses(job.metrics("plain"));
  const auto number = [](const std::string& loss) { return std::stod(loss.substr(loss.find(':') + 1)); };
  REQUIRE(plain.size() == 6);  // four steps, an evaluation, the end
  REQUIRE(smoothed[4][0] == plain[4][0]);
  CHECK(smoothed[4][2] == plain[4][2]);  // the accuracy
  // All outputs are small yet, so that a class by itself costs about log(10), and so do all of them alike.
  CHECK(number(smoothed[4][1]) == doctest::Approx(number(plain[4][1])).epsilon(0.01));
  for (int line = 0; line < 5; ++line) CHECK(smoothed[line][1] != plain[line][1]);
}

TEST_CASE("another seed gives another model, so the comparisons above can fail") {
  const Job job;
  JobConfig other = job.config("other");
  other.train.seed = 43;
  run_job(job.config("one"), 1);
  run_job(other, 1);
  CHECK(job.model("one") != job.model("other"));
}

TEST_CASE(
    "all ranks stop after the same step when one is told to, and another world finishes to the same bytes") {
  const Job job;
  run_job(job.config("whole"), 1);
  // At the first step; behind the evaluation of step 7, where rank 1 has 6 leaves, between two checkpoints.
  for (const auto& [act_at, stopped_at] : {std::pair{0, 1}, {16, 11}}) {
    const std::string output = "stopped" + std::to_string(act_at);
    CAPTURE(output);
    CHECK(stop_run(job.config(output), 3, act_at) == 0);
    CHECK_FALSE(fs::exists(job.directory.path() / output / "model.safetensors"));
    CHECK(run_job(job.config(output), 2) == stopped_at);
    CHECK(job.model(output) == job.model("whole"));
    CHECK(losses(job.metrics(output)) == losses(job.metrics("whole")));
  }
}

TEST_CASE("a run that is complete says where it began and where its training's time went") {
  const Job job;
  const auto run = [&] {
    TestLink link;
    REQUIRE(run_rank(job.config("out"), *make_single_process_group(), 1, link) == Outcome::kCompleted);
    CHECK(link.first_step_ == link.completion_->first_step);
    return *link.completion_;
  };
  stop_run(job.config("out"), 2, 5);
  const Completion done = run();
  CHECK(done.first_step == 6);  // it was asked before the sixth step, which was finished
  CHECK(done.step == 20);
  CHECK(done.training_seconds > 0);
  CHECK(done.training_seconds < done.seconds);
  // Six steps of 32 samples are done of the two epochs.
  CHECK(done.samples_per_second * done.training_seconds == doctest::Approx(2 * kTrainSamples - 6 * 32));
  CHECK(done.math > 0);
  CHECK(done.wait_gradients >= 0);
  CHECK(done.wait_data > 0);
  CHECK(done.math + done.wait_gradients + done.wait_data + done.other == doctest::Approx(1));
  const Completion again = run();
  CHECK(again.first_step == 20);
  CHECK(again.training_seconds == 0);
  CHECK(again.samples_per_second == 0);
}

TEST_CASE("an evaluation that a stop cut short or kept from beginning is made up for at the next start") {
  const Job job;
  run_job(job.config("whole"), 1);
  // Asked for the seventh time before the last step that precedes the evaluation, then once per leaf.
  for (const int act_at : {6, 8}) {
    const std::string output = "stopped" + std::to_string(act_at);
    CAPTURE(output);
    CHECK(stop_run(job.config(output), 2, act_at) == 0);
    CHECK(fs::exists(job.directory.path() / output / "checkpoints/step-00000007"));
    CHECK(losses(job.metrics(output)).back()[2].empty());
    // Stopped again before the evaluation has ended, which costs nothing either.
    CHECK(stop_run(job.config(output), 2, 0) == 7);
    CHECK(run_job(job.config(output), 2) == 7);
    CHECK(job.model(output) == job.model("whole"));
    CHECK(losses(job.metrics(output)) == losses(job.metrics("whole")));
  }
}

TEST_CASE("a killed rank breaks the process group, and the next generation goes on to the same bytes") {
  const Job job;
  run_job(job.config("whole"), 1);
  kill_run(job.config("killed"), job.directory / "store", 3, 16);
  // Killed at the 17th question, which precedes step 11; rank 0 may not have heard the end of step 10.
  const std::int64_t began_at = run_job(job.config("killed"), 2, 1, 2);
  CHECK_MESSAGE((began_at == 5 || began_at == 10), began_at);
  CHECK(job.model("killed") == job.model("whole"));
}

TEST_CASE("a rank that loses a peer in the middle of a step keeps the state of the last whole step") {
  const Job job;
  const auto survive = [&] {
    DirectoryStore store(job.directory.path() / "store");
    const auto group = connect(0, 2, store, milliseconds(20000));
    const JobConfig config = job.config("survived");
    const Datasets data = load_datasets(config);
    Replica survivor(config, data, 1);
    TestLink link;
    try {
      train(survivor, {.rank = 0, .world_size = 2}, *group, link);
      return 1;
    } catch (const WorkerError& error) {
      if (error.exit_code() != kExitWorkerPeerLost) return 2;
    }
    JobConfig shorter = job.config("undisturbed");
    shorter.train.max_steps = survivor.state.step;
    Replica undisturbed(shorter, data, 1);
    TestLink quiet;
    train(undisturbed, {}, *make_single_process_group(), quiet);
    const auto same_values = [](const OptimizerSlot& a, const OptimizerSlot& b) {
      return a.values == b.values;
    };
    const TrainState left = survivor.snapshot(), wanted = undisturbed.snapshot();
    const bool same = left.parameters == wanted.parameters &&
                      std::ranges::equal(left.optimizer, wanted.optimizer, same_values);
    return same && left.step > 5 ? 0 : 3;
  };
  const pid_t survivor = fork_child(survive);
  const pid_t lost = fork_child([&] {
    DirectoryStore store(job.directory.path() / "store");
    const auto group = connect(1, 2, store, milliseconds(20000));
    TestLink link(16, true);
    run_rank(job.config("survived"), *group, 1, link);
    return 0;
  });
  REQUIRE(wait_for_exit(lost, milliseconds(60000)).has_value());
  const auto status = wait_for_exit(survivor, milliseconds(60000));
  REQUIRE(status.has_value());
  REQUIRE(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 0);
}

namespace {

void check_survival(int world_after) {
  CAPTURE(world_after);
  const Job job;
  JobConfig whole = job.config("whole");
  whole.train.logging_steps = 10;  // the loss is in the middle of a line's steps
  run_job(whole, 1);
  JobConfig config = whole;
  config.output_dir = job.config("survived").output_dir;
  config.train.save_steps = 0;  // there is no checkpoint that they could go on from
  int worlds[] = {3, world_after};
  std::vector<pid_t> pids;
  for (const int rank : {0, 1})
    pids.push_back(fork_child([&, rank] { return live_through_two_generations(job, config, rank, worlds); }));
  const pid_t lost = fork_child([&] {
    DirectoryStore store(job.directory.path() / "store1");
    const auto group = connect(2, 3, store, milliseconds(20000));
    TestLink link(16, true);
    run_rank(config, *group, 1, link);
    return 0;
  });
  REQUIRE(wait_for_exit(lost, milliseconds(60000)).has_value());
  if (world_after == 3)
    pids.push_back(fork_child([&] {
      DirectoryStore store(job.directory.path() / "store2");
      const auto group = connect(2, 3, store, milliseconds(20000));
      TestLink link;
      run_rank(config, *group, 1, link, 2);
      return link.began_at_.value_or(0) > 0 ? 0 : 1;
    }));
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, milliseconds(60000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 0);
  }
  CHECK(job.model("survived") == job.model("whole"));
  CHECK(losses(job.metrics("survived")) == losses(job.metrics("whole")));
}

}  // namespace

TEST_CASE("survivors go on in their processes with what they have in memory, fewer or with a new rank") {
  check_survival(2);
  check_survival(3);
}

TEST_CASE("a diverged run ends, but its checkpoints push out none that can be used") {
  const Job job;
  JobConfig config = job.config("run");
  config.train.save_total_limit = 1;
  config.train.max_steps = 10;
  run_job(config, 1);
  config.train.max_steps = 40;
  config.train.learning_rate = 1e5;
  config.train.on_divergence = DivergenceAction::kWarn;
  CHECK(run_job(config, 2) == 10);
  CHECK(fs::exists(job.directory.path() / "run/checkpoints/step-00000010"));
  CHECK_FALSE(fs::exists(job.directory.path() / "run/checkpoints/step-00000035"));
  CHECK(contains(job.metrics("run"), "\"event\":\"eval\",\"step\":40,\"loss\":null"));
}

TEST_CASE("the loss of a line of metrics is that of all steps since the line before, evaluated or not") {
  const Job job;
  JobConfig config = job.config("run");
  config.train.logging_steps = 6;
  config.train.max_steps = 6;
  config.train.eval_steps = 0;
  run_job(config, 1);
  JobConfig evaluating = config;
  evaluating.output_dir = job.config("evaluating").output_dir;
  evaluating.train.eval_steps = 4;
  run_job(evaluating, 1);
  CHECK(losses(job.metrics("evaluating")).at(1) == losses(job.metrics("run")).at(0));
}

TEST_CASE("test images of another size than the training images are refused") {
  const Job job;
  std::ofstream images(job.directory.path() / "t10k-images-idx3-ubyte", std::ios::binary);
  images << std::string("\0\0\x08\x03\0\0\0\x46\0\0\0\x18\0\0\0\x18", 16)
         << std::string(kTestSamples * 24 * 24, 'x');
  images.close();
  const Status status = check_dataset(job.config("run").data).status();
  CHECK(status.exit_code() == kExitNoInput);
  CHECK_MESSAGE(contains(status.message(), "t10k-images-idx3-ubyte: has images of 24 x 24 pixels"),
                status.message());
  CHECK_THROWS_AS(load_datasets(job.config("run")), WorkerError);
}

}  // namespace
}  // namespace dtrun::worker::trainer_test
