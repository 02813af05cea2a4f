// Hang detection with the built-in trainer: its reports go on by themselves, so only its pulse tells.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/training.h"

using namespace dtrun::test;

namespace {

std::vector<std::string> watched(const std::string& timeout_s, const std::filesystem::path& logs) {
  std::vector<std::string> options = standalone(2);
  options.insert(options.end(), {"--max_restarts", "1", "--heartbeat-timeout", timeout_s, "--rdzv_id", "hang",
                                 "--log_dir", logs.string()});
  return options;
}

}  // namespace

TEST_CASE("a worker that stands still is found, not the one that waits for it, and the run is finished") {
  TemporaryDirectory directory;
  Program job(training(watched("3", directory / "logs"), directory / "out",
                       {"train.max_steps=150", "train.save_steps=5"}));
  REQUIRE(eventually([&] { return metrics_lines(directory / "out") >= 13; }));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 2);
  // Its command line does not tell its rank; its environment does.
  const std::string environment = read_file("/proc/" + std::to_string(workers[1]) + "/environ");
  const std::string rank = contains(environment, std::string("\0RANK=1\0", 8)) ? "1" : "0";
  kill(workers[1], SIGSTOP);
  const Ended ended = job.wait();
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(contains(ended.err, "rank " + rank + ": no progress for 3 s"));
  CHECK(contains(ended.err, "restart 1 of 1"));
  const std::string stacks = read_file(directory / ("logs/hang/attempt_1/" + rank + "/stacks.txt"));
  CHECK(contains(stacks, "(dtrun-worker): T (stopped)"));
}

TEST_CASE("evaluations, checkpoints and waits for peers are signs of life") {
  TemporaryDirectory directory;
  const Ended ended = run(training(watched("5", directory / "logs"), directory / "out",
                                   {"train.max_steps=60", "train.save_steps=5", "train.eval_steps=10"}));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK_FALSE(contains(ended.err, "no progress"));
}
