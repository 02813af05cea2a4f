// Hang detection with the built-in trainer: its reports go on by themselves, so only its pulse tells.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/training.h"

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

}  // namespace

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
