// Hang detection with the built-in trainer: its reports go on by themselves, so only its pulse tells.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "tests/e2e/training.h"

namespace dtrun::hang_test {

using namespace dtrun::test;

namespace {

constexpr int kTimeout = 3;  // seconds

std::vector<std::string> watched(int workers, const std::filesystem::path& logs) {
  std::vector<std::string> options = standalone(workers);
  options.insert(options.end(), {"--max_restarts", "1", "--heartbeat-timeout", std::to_string(kTimeout),
                                 "--rdzv_id", "hang", "--log_dir", logs.string()});
  return options;
}

// A run that does not end by itself trains for twice the timeout, and is not taken for one that hangs.
void check_outlives_timeout(int workers, const std::vector<std::string>& overrides) {
  Folder directory;
  std::vector<std::string> endless = overrides;
  endless.push_back("train.max_steps=1000000000");
  Process job(training(watched(workers, directory / "logs"), directory / "out", endless));
  REQUIRE_MESSAGE(eventually([&] { return metrics_lines(directory / "out") >= 1; }), job.err());
  const bool accused =
      eventually([&] { return contains(job.err(), "no progress"); }, std::chrono::seconds(2 * kTimeout));
  job.signal(SIGTERM);
  const Ended ended = job.end();
  CHECK_MESSAGE(!accused, ended.err);
  CHECK_MESSAGE(ended.exit_code == 143, ended.err);  // it was still at work
  CHECK_MESSAGE(contains(ended.err, "checkpoint saved"), ended.err);
}

// A model whose steps take a fraction of a millisecond, so that a moment falls into each part of one.
constexpr char kSmall[] = R"({
  "model": {"type": "mlp", "hidden_sizes": [64]},
  "data": {"type": "synthetic", "samples": 4096, "shape": [1, 8, 8], "classes": 10},
  "train": {"max_steps": 20000, "global_batch_size": 32, "micro_batch_size": 16, "eval_steps": 0,
            "logging_steps": 100, "save_steps": 1000, "optim": "sgd", "learning_rate": 0.05}
})";

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::size_t count_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Two workers, one of which is stopped now and then.
class ShortSteps {
 public:
  explicit ShortSteps(std::mt19937& random) : random_(random) {
    std::ofstream(directory_ / "small.json") << kSmall;
    const Ended alone = run(command(1));
    REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
    undisturbed_ = model_bytes();
    REQUIRE(!undisturbed_.empty());
  }

  // Stops a worker as often as the job allows, at most so many times; how often that was.
  int stop_workers(int most) {
    Process job(command(2));
    int stopped = 0;
    while (stopped < most && both_train(job, stopped) && stop_one(job)) ++stopped;
    const Ended ended = job.end(std::chrono::minutes(5));
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(count_in(ended.err, "restart ") == static_cast<std::size_t>(stopped));
    CHECK(count_in(ended.err, "resumed from step") == 0);
    CHECK(steps_redone(ended.err) <= stopped);
    CHECK(model_bytes() == undisturbed_);
    return stopped;
  }

 private:
  std::vector<std::string> command(int workers) {
    std::filesystem::remove_all(directory_ / "out");
    std::vector<std::string> argv = standalone(workers);
    argv.insert(argv.begin(), kDtrun);
    argv.insert(argv.end(), {"--max_restarts", "1000", "--heartbeat_timeout", std::to_string(kTimeout),
                             directory_ / "small.json", "output_dir=" + (directory_ / "out").string()});
    return argv;
  }

  // A worker that is stopped before the other one has the state loses the state, which another test covers.
  static bool both_train(const Process& job, int times_stopped) {
    return eventually([&] {
             if (!is_alive(job.pid())) return true;
             const bool began = times_stopped > 0 || contains(job.err(), "dtrun: step ");
             const auto back = static_cast<int>(count_in(job.err(), " with 2 workers\n"));
             return began && back == times_stopped && children_of(job.pid(), "dtrun-worker").size() == 2;
           }) &&
           is_alive(job.pid());
  }

  // False if the job was over by then.
  bool stop_one(const Process& job) {
    std::this_thread::sleep_for(std::chrono::microseconds(20000 + random_() % 300000));
    const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
    if (workers.size() != 2) return false;
    const std::size_t which = random_() % 2;
    if (kill(workers[which], SIGSTOP) != 0) return false;
    const bool replaced = eventually([&] { return !is_alive(workers[which]) || !is_alive(job.pid()); });
    CHECK_MESSAGE(replaced, job.err());
    if (!replaced) kill(workers[which], SIGCONT);
    if (!is_alive(job.pid())) return false;
    CHECK_MESSAGE(is_alive(workers[1 - which]), job.err());
    return true;
  }

  static int steps_redone(const std::string& err) {
    const std::string before = "; at least ";
    const std::size_t at = err.find(before);
    return at == std::string::npos ? 0 : std::atoi(err.c_str() + at + before.size());
  }

  std::string model_bytes() const { return read_if_there(directory_ / "out/model.safetensors"); }

  std::mt19937& random_;
  const Folder directory_;
  std::string undisturbed_;
};

}  // namespace

// DTRUN_ROUNDS=300 stops so many, in several jobs, at moments that follow from DTRUN_SEED.
TEST_CASE(
    "a worker that is stopped in any moment of a short step costs that step, and never the other worker") {
  std::mt19937 random(static_cast<unsigned>(number_from("DTRUN_SEED", 1)));
  const int rounds = number_from("DTRUN_ROUNDS", 4);
  ShortSteps job(random);
  int stopped = 0;
  for (int jobs = 0; stopped < rounds && jobs < rounds; ++jobs) stopped += job.stop_workers(rounds - stopped);
  CHECK(stopped == rounds);
  std::printf("%d workers were stopped\n", stopped);
}

TEST_CASE("a worker that stands still is found, not the one that waits for it, and the run is finished") {
  Folder directory;
  Process job(training(watched(2, directory / "logs"), directory / "out",
                       {"train.max_steps=150", "train.save_steps=5"}));
  REQUIRE(eventually(
      [&] { return metrics_lines(directory / "out") >= 13 && has_checkpoint(directory / "out"); }));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 2);
  // Its command line does not tell its rank; its environment does.
  const std::string environment = read_if_there("/proc/" + std::to_string(workers[1]) + "/environ");
  const std::string rank = contains(environment, std::string("\0RANK=1\0", 8)) ? "1" : "0";
  kill(workers[1], SIGSTOP);
  const Ended ended = job.end();
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(contains(ended.err, "rank " + rank + ": no progress for 3 s"));
  CHECK(contains(ended.err, "restart 1 of 1"));
  CHECK(contains(ended.err, "going on at step "));
  const std::string stacks = read_if_there(directory / ("logs/hang/attempt_1/" + rank + "/stacks.txt"));
  CHECK(contains(stacks, "(dtrun-worker): T (stopped)"));
}

TEST_CASE("steps alone are signs of life, of a worker that waits for no other") {
  check_outlives_timeout(1, {"train.save_steps=0"});
}

TEST_CASE("steps, evaluations, checkpoints and waits for peers in turn are signs of life") {
  check_outlives_timeout(2, {"train.save_steps=5", "train.eval_steps=10"});
}

}  // namespace dtrun::hang_test
