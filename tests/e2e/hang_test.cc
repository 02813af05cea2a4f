// Hang detection with the built-in trainer: its reports go on by themselves, so only its pulse tells.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"

namespace dtrun::hang_test {

using namespace dtrun::test;

namespace {

constexpr std::chrono::seconds kTimeout{3};

std::vector<std::string> watched(int workers, const std::filesystem::path& logs) {
  return joined(standalone(workers),
                {"--max_restarts", "1", "--heartbeat-timeout", std::to_string(soon(kTimeout).count()),
                 "--rdzv_id", "hang", "--log_dir", logs.string()});
}

// A run that does not end by itself trains for twice the timeout, and is not taken for one that hangs.
void check_outlives_timeout(int workers, const std::vector<std::string>& overrides) {
  Folder directory;
  Process job(endless_training(watched(workers, directory / "logs"), directory / "out", overrides));
  REQUIRE_MESSAGE(trains(directory / "out", 1), job.err());
  const bool accused = job.wait_for_err("no progress", 2 * kTimeout);
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
  "train": {"max_steps": 1000000000, "global_batch_size": 32, "micro_batch_size": 16, "eval_steps": 0,
            "logging_steps": 100, "save_steps": 1000, "optim": "sgd", "learning_rate": 0.05,
            "lr_scheduler_type": "constant"}
})";

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int count_in(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Two workers, one of which is stopped now and then.
class ShortSteps {
 public:
  explicit ShortSteps(std::mt19937& random) : random_(random) {
    std::ofstream(directory_ / "small.json") << kSmall;
  }

  void stop_workers(int count) {
    Process job(resting(command(2, "out"), std::chrono::microseconds(500)));
    REQUIRE_MESSAGE(job.wait_for_err("dtrun: step "), job.err());
    for (int stopped = 0; stopped < count; ++stopped) {
      stop_one(job);
      // A worker that is stopped before the other one has the state loses the state, which another test
      // covers.
      const auto both = [&] {
        const std::string said = job.err();
        return count_in(said, " with 2 workers\n") + count_in(said, " with 2 workers, from the memory of ");
      };
      REQUIRE_MESSAGE(eventually([&] { return both() > stopped; }), job.err());
    }
    job.signal(SIGTERM);
    const Ended ended = job.end();
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 143);
    CHECK(count_in(ended.err, "restart ") == count);
    CHECK(count_in(ended.err, "resumed from step") == 0);
    CHECK(steps_redone(ended.err) <= count);
    const auto [steps, bytes] = newest_checkpoint(directory_ / "out");
    const Ended alone = run(joined(command(1, "alone"), {"train.max_steps=" + std::to_string(steps)}));
    REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
    REQUIRE(!bytes.empty());
    CHECK(bytes == read_if_there(directory_ / "alone/model.safetensors"));
  }

 private:
  std::vector<std::string> command(int workers, const std::string& output) const {
    return joined(joined({kDtrun}, standalone(workers)),
                  {"--max_restarts", "1000", "--heartbeat_timeout", std::to_string(soon(kTimeout).count()),
                   directory_ / "small.json", "output_dir=" + (directory_ / output).string()});
  }

  void stop_one(const Process& job) {
    std::this_thread::sleep_for(std::chrono::microseconds(20000 + random_() % 300000));
    const std::vector<pid_t> workers = workers_of(job, 2);
    const std::size_t which = random_() % 2;
    kill(workers[which], SIGSTOP);
    const bool replaced = eventually([&] { return !is_alive(workers[which]); });
    if (!replaced) kill(workers[which], SIGCONT);
    REQUIRE_MESSAGE(replaced, job.err());
    CHECK_MESSAGE(is_alive(workers[1 - which]), job.err());
  }

  static int steps_redone(const std::string& err) {
    const std::string before = "; at least ";
    const std::size_t at = err.find(before);
    return at == std::string::npos ? 0 : std::atoi(err.c_str() + at + before.size());
  }

  std::mt19937& random_;
  const Folder directory_;
};

}  // namespace

// DTRUN_ROUNDS=300 stops so many, at moments that follow from DTRUN_SEED.
TEST_CASE(
    "a worker that is stopped in any moment of a short step costs that step, and never the other worker") {
  std::mt19937 random(static_cast<unsigned>(number_from("DTRUN_SEED", 1)));
  ShortSteps(random).stop_workers(number_from("DTRUN_ROUNDS", 4));
}

TEST_CASE("a worker that stands still is found, not the one that waits for it, and the run is finished") {
  const Site site;
  const Ended ended = run(
      site.command(watched(2, site.mark("logs"))),
      site.environment({{.point = "updated", .rank = 1, .count = 13, .signal = SIGSTOP, .once = "still"}}));
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(contains(ended.err, "rank 1: no progress for 3 s"));
  CHECK(contains(ended.err, "restart 1 of 1"));
  CHECK(contains(ended.err, "going on at step "));
  CHECK(
      contains(read_if_there(site.mark("logs/hang/attempt_1/1/stacks.txt")), "(dtrun-worker): T (stopped)"));
}

TEST_CASE("steps alone are signs of life, of a worker that waits for no other") {
  check_outlives_timeout(1, {"train.save_steps=0"});
}

TEST_CASE("steps, evaluations, checkpoints and waits for peers in turn are signs of life") {
  check_outlives_timeout(2, {"train.save_steps=5", "train.eval_steps=10"});
}

}  // namespace dtrun::hang_test
