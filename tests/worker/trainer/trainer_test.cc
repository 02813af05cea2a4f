#include "worker/trainer/trainer.h"

#include <doctest/doctest.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <random>

#include "tests/worker/trainer/ranks.h"
#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A small data set in the files of Fashion-MNIST: each class is bright in a place of its own, under noise.
void write_idx(const fs::path& directory, const std::string& images, const std::string& labels, int count,
               unsigned seed) {
  std::mt19937 random(seed);
  auto big_endian = [](std::ofstream& out, int value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(value >> shift));
  };
  std::ofstream x(directory / images, std::ios::binary), y(directory / labels, std::ios::binary);
  for (const int value : {0x803, count, 28, 28}) big_endian(x, value);
  for (const int value : {0x801, count}) big_endian(y, value);
  for (int sample = 0; sample < count; ++sample) {
    const int label = static_cast<int>(random() % 10);
    y.put(static_cast<char>(label));
    for (int pixel = 0; pixel < 28 * 28; ++pixel) {
      const bool bright = pixel / 28 / 6 == label / 5 * 2 && pixel % 28 / 5 == label % 5;
      x.put(static_cast<char>(random() % 100 + (bright ? 150 : 0)));
    }
  }
}

// 301 samples make steps of 8 leaves and a last one of 4 whose last leaf holds a single sample.
constexpr int kTrainSamples = 301, kTestSamples = 70;

struct Job {
  Job() {
    write_idx(directory.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", kTrainSamples, 1);
    write_idx(directory.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", kTestSamples, 2);
    spdlog::set_level(spdlog::level::off);
  }
  JobConfig config(const std::string& output) const {
    JobConfig config;
    config.output_dir = (directory.path() / output).string();
    config.model.type = "convnet";
    config.data = {"fashion_mnist", directory.path().string()};
    config.train.num_train_epochs = 2;
    config.train.global_batch_size = 32;
    config.train.micro_batch_size = 4;
    config.train.learning_rate = 0.05;
    config.train.logging_steps = 1;
    config.train.eval_steps = 7;
    config.train.save_steps = 5;
    return config;
  }
  std::string model(const std::string& output) const {
    std::string bytes = read_text(directory.path() / output / "model.safetensors");
    REQUIRE(bytes.size() > 80000);
    return bytes;
  }
  std::string metrics(const std::string& output) const {
    return read_text(directory.path() / output / "metrics.jsonl");
  }
  TemporaryDirectory directory;
};

// Stops, or dies, when the trainer asks for the n-th time whether it should: once a step, and once per leaf
// of an evaluation.
class TestLink final : public AgentLink {
 public:
  explicit TestLink(int act_at = -1, bool die = false) : act_at_(act_at), die_(die) {}
  bool stop_requested() const override {
    const bool now = act_at_ >= 0 && asked_++ >= act_at_;
    if (now && die_) raise(SIGKILL);
    return now;
  }
  void report(const TrainingProgress&) override {}
  void completed(const Completion& completion) override { completion_ = completion; }
  std::optional<Completion> completion_;

 private:
  const int act_at_;
  const bool die_;
  mutable std::atomic<int> asked_{0};
};

Outcome run_rank(const JobConfig& config, Collective& collective, int lanes, AgentLink& link,
                 std::int64_t generation = 1) {
  const TrainerSetup setup{
      config, {collective.rank(), collective.size(), collective.rank(), generation}, lanes};
  return train(setup, load_datasets(config), collective, link);
}

void run_job(const JobConfig& config, int world, int lanes = 1) {
  run_as_threads(world, [&](Collective& collective) {
    TestLink link;
    const Outcome outcome = run_rank(config, collective, lanes, link);  // throws past doctest's macros
    REQUIRE(outcome == Outcome::kCompleted);
    REQUIRE(link.completion_.has_value() == (collective.rank() == 0));
  });
}

// Without what rightly differs between worlds and runs: times, rates, shares, the world size.
std::vector<std::array<std::string, 3>> losses(const std::string& metrics) {
  auto value = [](const std::string& line, const std::string& key) {
    const std::size_t at = line.find("\"" + key + "\":");
    return at == std::string::npos ? std::string() : line.substr(at, line.find_first_of(",}", at) - at);
  };
  std::vector<std::array<std::string, 3>> values;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    values.push_back({value(line, "step"), value(line, "loss"), value(line, "accuracy")});
  }
  return values;
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
    config.train.optim = "adamw";
    config.train.learning_rate = 0.002;
    config.train.weight_decay = 0.01;
    config.train.max_grad_norm = 0.5;
    config.train.lr_scheduler_type = "cosine";
    config.train.warmup_steps = 3;
    return config;
  };
  run_job(config("one"), 1, 2);
  run_job(config("three"), 3);
  CHECK(job.model("three") == job.model("one"));
}

TEST_CASE("another seed gives another model, so the comparisons above can fail") {
  const Job job;
  JobConfig other = job.config("other");
  other.train.seed = 43;
  run_job(job.config("one"), 1);
  run_job(other, 1);
  CHECK(job.model("one") != job.model("other"));
}

TEST_CASE("the ring trains too, to other bits by design") {
  const Job job;
  JobConfig ring = job.config("ring");
  ring.train.reduction = "ring";
  run_job(job.config("tree"), 3);
  run_job(ring, 3);
  CHECK(job.model("ring") != job.model("tree"));
  const auto tree_end = losses(job.metrics("tree")), ring_end = losses(job.metrics("ring"));
  CHECK(tree_end.size() == ring_end.size());
}

TEST_CASE(
    "all ranks stop after the same step when one is told to, and another world finishes to the same bytes") {
  const Job job;
  run_job(job.config("whole"), 1);
  // At the first step; behind the evaluation of step 7, between two checkpoints.
  for (const int act_at : {0, 15}) {
    const std::string output = "stopped" + std::to_string(act_at);
    CAPTURE(output);
    run_as_threads(3, [&](Collective& collective) {
      TestLink link(collective.rank() == 1 ? act_at : -1);
      REQUIRE(run_rank(job.config(output), collective, 1, link) == Outcome::kStopped);
    });
    CHECK_FALSE(fs::exists(job.directory.path() / output / "model.safetensors"));
    run_job(job.config(output), 2);
    CHECK(job.model(output) == job.model("whole"));
    CHECK(losses(job.metrics(output)) == losses(job.metrics("whole")));
  }
}

TEST_CASE("a stop during an evaluation is obeyed without finishing it, and costs that evaluation only") {
  const Job job;
  run_job(job.config("whole"), 1);
  run_as_threads(2, [&](Collective& collective) {
    TestLink link(collective.rank() == 1 ? 8 : -1);
    REQUIRE(run_rank(job.config("stopped"), collective, 1, link) == Outcome::kStopped);
  });
  CHECK(fs::exists(job.directory.path() / "stopped/checkpoints/step-00000007"));
  run_job(job.config("stopped"), 2);
  CHECK(job.model("stopped") == job.model("whole"));
  auto wanted = losses(job.metrics("whole"));
  std::erase_if(wanted, [](const auto& line) { return line[0] == "\"step\":7" && !line[2].empty(); });
  CHECK(losses(job.metrics("stopped")) == wanted);
}

TEST_CASE("a killed rank breaks the collective, and the next generation goes on to the same bytes") {
  const Job job;
  run_job(job.config("whole"), 1);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(job.directory.path() / "store");
      const auto collective = connect(rank, 3, store, milliseconds(20000));
      TestLink link(rank == 2 ? 16 : -1, true);
      run_rank(job.config("killed"), *collective, 1, link);
      return 0;
    }));
  }
  const auto killed = wait_for_exit(pids[2], milliseconds(60000));
  REQUIRE(killed.has_value());
  CHECK(WIFSIGNALED(*killed));
  for (const int rank : {0, 1}) {
    const auto status = wait_for_exit(pids[rank], milliseconds(10000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == kExitWorkerPeerLost);
  }
  run_as_threads(2, [&](Collective& collective) {
    TestLink link;
    REQUIRE(run_rank(job.config("killed"), collective, 1, link, 2) == Outcome::kCompleted);
  });
  CHECK(job.model("killed") == job.model("whole"));
}

TEST_CASE("a checkpoint that only another rank's disk holds is sent to all") {
  const Job job;
  run_job(job.config("whole"), 1);
  JobConfig half = job.config("half");
  run_as_threads(1, [&](Collective& collective) {
    TestLink link(9);
    REQUIRE(run_rank(half, collective, 1, link) == Outcome::kStopped);
  });
  // Rank 1 sees the directory under another name, as a node with a disk of its own would.
  const JobConfig empty = job.config("empty");
  run_as_threads(2, [&](Collective& collective) {
    TestLink link;
    const JobConfig& mine = collective.rank() == 0 ? empty : half;
    const TrainerSetup setup{mine, {collective.rank(), 2, 0, 1}, 1};
    REQUIRE(train(setup, load_datasets(mine), collective, link) == Outcome::kCompleted);
  });
  CHECK(job.model("empty") == job.model("whole"));
}

TEST_CASE("a finished run started again ends at once with the same model") {
  const Job job;
  run_job(job.config("run"), 2);
  const std::string model = job.model("run");
  run_job(job.config("run"), 1);
  CHECK(job.model("run") == model);
}

TEST_CASE("starting afresh where results lie is refused, and they stay as they are") {
  const Job job;
  run_job(job.config("run"), 1);
  const std::string model = job.model("run"), metrics = job.metrics("run");
  JobConfig afresh = job.config("run");
  afresh.train.resume_from_checkpoint = "none";
  try {
    run_job(afresh, 1);
    FAIL("was not refused");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitConfig);
    CHECK(std::string(error.what()).find("another output_dir") != std::string::npos);
  }
  CHECK(job.model("run") == model);
  CHECK(job.metrics("run") == metrics);
}

TEST_CASE("a checkpoint that the config names is where the run begins") {
  const Job job;
  run_job(job.config("run"), 1);
  JobConfig again = job.config("again");
  again.train.resume_from_checkpoint = job.config("run").output_dir + "/checkpoints/step-00000010";
  run_job(again, 2);
  CHECK(job.model("again") == job.model("run"));
  CHECK(losses(job.metrics("again")).front()[0] == "\"step\":11");
}

TEST_CASE("only what the parameters and samples are may not change between a checkpoint and its resumption") {
  const Job job;
  const JobConfig then = job.config("run");
  JobConfig longer = then;
  longer.train.num_train_epochs = 9;
  longer.data.path = "/elsewhere";
  const ConfigDrift harmless = config_drift(longer, to_canonical_json(then));
  CHECK(harmless.fatal.empty());
  CHECK(harmless.harmless.find("/train/num_train_epochs") != std::string::npos);
  CHECK(config_drift(then, to_canonical_json(then)).harmless.empty());
}

}  // namespace
}  // namespace dtrun::worker
