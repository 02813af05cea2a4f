// The beginning of a run: at the newest good checkpoint of any node, at one that the config names, or anew.
#include "worker/trainer/recovery/resume.h"

#include <thread>

#include "tests/worker/trainer/jobs.h"
#include "worker/checkpoint/config_drift.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/output_lock.h"

namespace dtrun::worker::resume_test {
namespace {

// Each rank as the only one of a node that has the directory of that name. Returns the step from which they
// went on.
std::int64_t run_on_nodes(const Job& job, const std::vector<std::string>& outputs, int stop_at,
                          Outcome outcome, std::int64_t generation = 1) {
  std::int64_t began_at = -1;
  run_as_threads(static_cast<int>(outputs.size()), [&](ProcessGroup& group) {
    TestLink link(stop_at);
    const JobConfig config = job.config(outputs[group.rank()]);
    const RankInGeneration place{group.rank(), group.size(), 0, generation};
    REQUIRE(run_at(place, config, group, 1, link) == outcome);
    if (group.rank() == 0) began_at = link.began_at_.value_or(-1);
  });
  return began_at;
}

TEST_CASE("a checkpoint that only another rank's disk holds is sent to all") {
  const Job job;
  run_job(job.config("whole"), 1);
  CHECK(run_on_nodes(job, {"half"}, 9, Outcome::kStopped) == 0);
  // Rank 1 sees the directory under another name, as a node with a disk of its own would.
  CHECK(run_on_nodes(job, {"empty", "half"}, -1, Outcome::kCompleted) == 7);
  CHECK(job.model("empty") == job.model("whole"));
}

TEST_CASE("a node with a disk of its own keeps checkpoints, and goes on when rank 0's node is lost") {
  const Job job;
  run_job(job.config("whole"), 1);
  const fs::path kept = job.directory.path() / "second/checkpoints";
  CHECK(run_on_nodes(job, {"first", "second"}, 19, Outcome::kStopped) == 0);
  REQUIRE(fs::exists(kept / "step-00000005"));
  fs::remove_all(job.directory.path() / "first");
  fs::remove_all(list_checkpoints(job.directory.path() / "second").rbegin()->second);  // as after a crash
  CHECK(run_on_nodes(job, {"second"}, -1, Outcome::kCompleted, 2) == 10);
  CHECK(job.model("second") == job.model("whole"));
}

TEST_CASE("what rank 0's node has is enough where another node's directory cannot be written") {
  const Job job;
  run_job(job.config("whole"), 1);
  std::ofstream(job.directory.path() / "file") << "in the way";
  run_on_nodes(job, {"first", "file/second"}, -1, Outcome::kCompleted);
  CHECK(job.model("first") == job.model("whole"));

  fs::create_directories(job.directory.path() / "second");
  std::ofstream(job.directory.path() / "second/checkpoints") << "in the way";
  run_on_nodes(job, {"third", "second"}, -1, Outcome::kCompleted);
  CHECK(job.model("third") == job.model("whole"));
}

TEST_CASE("nodes that share rank 0's directory leave the checkpoints to it") {
  const Job job;
  run_job(job.config("whole"), 1);
  run_on_nodes(job, {"shared", "shared", "shared"}, -1, Outcome::kCompleted);
  CHECK(job.model("shared") == job.model("whole"));
  CHECK(list_checkpoints(job.directory.path() / "shared").size() == 3);
}

TEST_CASE("a finished run started again ends at once with the same model") {
  const Job job;
  run_job(job.config("run"), 2);
  const std::string model = job.model("run");
  CHECK(run_job(job.config("run"), 1) == 20);
  CHECK(job.model("run") == model);
}

TEST_CASE("starting afresh where results lie is refused, and they stay as they are") {
  const Job job;
  run_job(job.config("run"), 1);
  const std::string model = job.model("run"), metrics = job.metrics("run");
  JobConfig afresh = job.config("run");
  afresh.train.resume_from_checkpoint = ResumeFrom("none");
  const WorkerError error = refusal(afresh);
  CHECK(error.exit_code() == kExitConfig);
  CHECK(contains(error.what(), "another output_dir"));
  CHECK(job.model("run") == model);
  CHECK(job.metrics("run") == metrics);
}

TEST_CASE("a checkpoint that the config names is where the run begins") {
  const Job job;
  run_job(job.config("run"), 1);
  JobConfig again = job.config("again");
  again.train.resume_from_checkpoint =
      ResumeFrom(job.config("run").output_dir + "/checkpoints/step-00000010");
  CHECK(run_job(again, 2) == 10);
  CHECK(job.model("again") == job.model("run"));
  CHECK(losses(job.metrics("again")).front()[0] == "\"step\":11");
}

TEST_CASE("a named checkpoint that is gone by the next generation is not missed if the run wrote its own") {
  const Job job;
  run_job(job.config("run"), 1);
  const fs::path named = job.directory.path() / "run/checkpoints/step-00000010";
  JobConfig again = job.config("again");
  again.train.resume_from_checkpoint = ResumeFrom(named.string());
  run_as_threads(1, [&](ProcessGroup& group) {
    TestLink link(4);
    REQUIRE(run_rank(again, group, 1, link) == Outcome::kStopped);
  });
  fs::remove_all(named);
  CHECK(run_job(again, 2, 1, 2) == 14);
  CHECK(job.model("again") == job.model("run"));

  // With nothing written yet, what the config names is still what is missing.
  JobConfig empty = job.config("empty");
  empty.train.resume_from_checkpoint = ResumeFrom(named.string());
  const WorkerError error = refusal(empty, 2);
  CHECK(error.exit_code() == kExitNoInput);
  CHECK(contains(error.what(), named.string()));
}

TEST_CASE("results of another run on any node refuse a fresh start, not on rank 0's node alone") {
  const Job job;
  run_job(job.config("run"), 1);
  for (const std::string from : {"none", "step-00000015"}) {
    CAPTURE(from);
    JobConfig fresh = job.config("fresh"), used = job.config("run");
    const fs::path named = job.directory.path() / "run/checkpoints" / from;
    for (JobConfig* config : {&fresh, &used}) {
      config->train.resume_from_checkpoint = ResumeFrom(from == "none" ? from : named.string());
    }
    std::atomic<int> refused{0};
    run_as_threads(2, [&](ProcessGroup& group) {
      TestLink link;
      const JobConfig& mine = group.rank() == 0 ? fresh : used;
      try {
        group.barrier();  // the refusing rank is not gone before the other one has connected
        run_at({group.rank(), 2, 0, 1}, mine, group, 1, link);
      } catch (const WorkerError& error) {
        if (error.exit_code() == kExitConfig && group.rank() == 1) ++refused;
      }
    });
    CHECK(refused == 1);
  }
}

TEST_CASE("checkpoints none of which is good are no reason to begin anew over them") {
  const Job job;
  run_job(job.config("run"), 1);
  for (const auto& entry : fs::directory_iterator(job.directory.path() / "run/checkpoints")) {
    fs::resize_file(entry.path() / "model.safetensors", 100);
  }
  const std::string model = job.model("run"), metrics = job.metrics("run");
  for (const std::int64_t generation : {1, 2}) {
    const WorkerError error = refusal(job.config("run"), generation);
    CHECK(error.exit_code() == kExitNoInput);
    CHECK(contains(error.what(), "none of the checkpoints in " + job.config("run").output_dir));
  }
  CHECK(job.model("run") == model);
  CHECK(job.metrics("run") == metrics);
}

TEST_CASE("a checkpoint for images of another size refuses the run and says so") {
  const Job job;
  run_job(job.config("run"), 1);
  write_idx(job.directory.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", kTrainSamples, 1, 32);
  write_idx(job.directory.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", kTestSamples, 2, 32);
  const WorkerError error = refusal(job.config("run"));
  CHECK(error.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(error.what(), "tensor \"fc1.weight\" has shape [50,320], this model needs [50,500]"),
                error.what());
}

TEST_CASE("another optimizer than the checkpoint's refuses the run, and the results stay as they are") {
  const Job job;
  run_job(job.config("run"), 1);
  const std::string model = job.model("run"), metrics = job.metrics("run");
  JobConfig other = job.config("run");
  other.train.optim = OptimizerType::kAdamW;
  other.train.num_train_epochs = 3;
  const WorkerError error = refusal(other);
  CHECK(error.exit_code() == kExitConfig);
  CHECK_MESSAGE(contains(error.what(), "/train/optim: the checkpoint of step 20 has the state of another"),
                error.what());
  CHECK(job.model("run") == model);
  CHECK(job.metrics("run") == metrics);
}

// Collects the trainer's log while this lives.
class Log {
 public:
  Log() {
    set_log_reader([this](const std::string& text) { text_ += text + '\n'; });
  }
  ~Log() {
    set_log_reader([](const std::string&) {});
  }
  Log(const Log&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

TEST_CASE("a change that gives the rest of an epoch other samples is warned of, others are merely told") {
  const Job job;
  JobConfig config = job.config("run");
  config.train.max_steps = 4;
  run_job(config, 1);
  auto log_of_resuming = [&](const auto& change) {
    config.train.max_steps += 1;
    change(config.train);
    const Log log;
    CHECK(run_job(config, 1) == config.train.max_steps - 1);
    return log.text();
  };
  const std::string warning = "the epoch in hand goes on with other samples";
  const std::string same = log_of_resuming([](TrainConfig&) {});
  CHECK_MESSAGE(contains(same, "/train/max_steps: 5 here, 4 there"), same);
  CHECK_FALSE_MESSAGE(contains(same, warning), same);
  const std::string larger = log_of_resuming([](TrainConfig& train) { train.global_batch_size = 48; });
  CHECK_MESSAGE(contains(larger, "/train/global_batch_size: 48 here, 32 there"), larger);
  CHECK_MESSAGE(contains(larger, warning), larger);
  const std::string seeded = log_of_resuming([](TrainConfig& train) { train.seed = 43; });
  CHECK_MESSAGE(contains(seeded, warning), seeded);
  const std::string dropping = log_of_resuming([](TrainConfig& train) { train.dataloader_drop_last = true; });
  CHECK_MESSAGE(contains(dropping, warning), dropping);
}

// The log of a run that goes on at step 7 with other images.
std::string log_with(const Job& job, const std::string& output, int samples, int seed,
                     bool may_differ = false) {
  const Folder other;
  write_idx(other.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", samples, 1 + seed);
  write_idx(other.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", kTestSamples, 2);
  JobConfig config = job.config(output);
  config.data.path = other.path().string();
  config.train.allow_other_data = may_differ;
  std::string log;
  set_log_reader([&](const std::string& line) { log += line + "\n"; });
  try {
    run_job(config, 1);
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitConfig);
    log += error.what();
  }
  set_log_reader([](const std::string&) {});
  return log;
}

TEST_CASE("a run that goes on with other data tells so; with more or fewer samples it must be asked for") {
  const Job job;
  const std::string changed = "the data changed since the checkpoint of step 7: ";
  const auto stopped = [&](const std::string& output) {
    fs::create_directories(job.directory.path() / output);
    CHECK(run_on_nodes(job, {output}, 9, Outcome::kStopped) == 0);
    return output;
  };
  const std::string moved = log_with(job, stopped("moved"), kTrainSamples, 0);
  CHECK_MESSAGE(!contains(moved, "the data changed"), moved);
  CHECK(contains(moved, "resumed from step 7"));
  const std::string other = log_with(job, stopped("other"), kTrainSamples, 5);
  CHECK_MESSAGE(contains(other, changed + "there are other samples now, as many"), other);
  CHECK(contains(other, "resumed from step 7"));
  const std::string fewer = log_with(job, stopped("fewer"), kTrainSamples - 1, 0);
  CHECK_MESSAGE(
      contains(fewer, changed + "it had 301 samples to train on, and there are 300 now, so that its steps "
                                "were of other epochs and samples; bring that data back"),
      fewer);
  CHECK(contains(fewer, "or set train.allow_other_data"));
  CHECK_FALSE(contains(fewer, "resumed from"));
  const std::string allowed = log_with(job, "fewer", kTrainSamples - 1, 0, true);
  CHECK_MESSAGE(contains(allowed, changed + "it had 301 samples to train on, and there are 300 now"),
                allowed);
  CHECK(contains(allowed, "resumed from step 7"));
}

TEST_CASE("a checkpoint of an older dtrun says nothing of its data, and any is taken") {
  const StateText older{.step = 3, .config_json = "{}\n"};
  const auto read = parse_state(to_json(older));
  REQUIRE(read.ok());
  CHECK(read.value().data == DataIdentity());
  StateText state = older;
  state.data = {.train = 3, .test = 4, .contents = "0123456789abcdef"};
  CHECK(parse_state(to_json(state)).value().data == state.data);
  ResumePoint start{.from = ResumePoint::kCheckpoint, .config_json = {}, .state = TrainState()};
  CHECK(data_drift(start, state.data, false) == "");
}

TEST_CASE("a checkpoint directory that cannot be written is told before the first step") {
  const Job job;
  const JobConfig config = job.config("run");
  fs::create_directories(config.output_dir);
  std::ofstream(fs::path(config.output_dir) / "checkpoints") << "in the way";
  CHECK(refusal(config).exit_code() == kExitCannotCreate);
  CHECK_FALSE(fs::exists(fs::path(config.output_dir) / "metrics.jsonl"));
}

TEST_CASE("the lock of a writer that was lost is waited for longer after a restart than at the start") {
  const Job job;
  const JobConfig config = job.config("run");
  std::optional<OutputLock> lost(std::in_place, config.output_dir, milliseconds(0));
  CHECK(contains(refusal(config).what(), "is in use by another run"));
  const std::jthread noticing([&] {
    std::this_thread::sleep_for(kLockPatience + milliseconds(1000));
    lost.reset();
  });
  run_job(config, 1, 1, 2);
  CHECK(job.model("run").size() > 0);
}

TEST_CASE("only what the parameters and samples are may not change between a checkpoint and its resumption") {
  const Job job;
  const JobConfig then = job.config("run");
  JobConfig longer = then;
  longer.train.num_train_epochs = 9;
  longer.data.path = "/elsewhere";
  const ConfigDrift harmless = config_drift(longer, to_canonical_json(then));
  CHECK(harmless.fatal.empty());
  CHECK(contains(harmless.harmless, "/train/num_train_epochs"));
  CHECK_FALSE(harmless.reorders_samples);
  CHECK(config_drift(then, to_canonical_json(then)).harmless.empty());
  JobConfig elsewhere = then;
  elsewhere.device = DeviceType::kCpu;
  CHECK(config_drift(elsewhere, to_canonical_json(then)).fatal.empty());
  CHECK(contains(config_drift(elsewhere, to_canonical_json(then)).harmless, "/device"));

  JobConfig keeps_copies = then;
  keeps_copies.recovery.in_memory_checkpoint_steps = 7;
  CHECK(config_drift(keeps_copies, to_canonical_json(then)).fatal.empty());
  CHECK(config_drift(keeps_copies, to_canonical_json(then)).harmless.empty());
  JobConfig gpt2 = then, recomputing;
  gpt2.model = {.type = ModelType::kGpt2};
  gpt2.data = {.type = DataType::kTokens, .path = "/data", .sequence_length = 8, .vocab_size = 100};
  recomputing = gpt2;
  recomputing.model.gradient_checkpointing = true;
  const ConfigDrift recomputes = config_drift(recomputing, to_canonical_json(gpt2));
  CHECK(recomputes.fatal.empty());
  CHECK_MESSAGE(contains(recomputes.harmless, "/model/gradient_checkpointing: true here, false there"),
                recomputes.harmless);

  longer.train.seed = 43;
  const ConfigDrift other_order = config_drift(longer, to_canonical_json(then));
  CHECK_MESSAGE(contains(other_order.harmless, "; /train/seed: 43 here, 42 there"), other_order.harmless);
  CHECK(contains(other_order.harmless, "/train/num_train_epochs"));
  CHECK(other_order.reorders_samples);
}

}  // namespace
}  // namespace dtrun::worker::resume_test
