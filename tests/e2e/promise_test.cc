// The promise: the same config gives the same bytes, for any division of the work and any failures. Real
// dtrun, real workers, the real data set.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>

#include "tests/e2e/training.h"

namespace dtrun::promise_test {

using namespace dtrun::test;

namespace {

// 24 steps of 128 samples with a checkpoint every 5: short, and no checkpoint falls on the last step. Images
// are changed at random, which no division of the work may change.
std::vector<std::string> command(const std::vector<std::string>& options, const std::filesystem::path& output,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{"train.max_steps=24", "train.save_steps=5", "data.random_crop_padding=2",
                                     "data.random_horizontal_flip=0.5"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return training(options, output, overrides);
}

// One worker, one lane, no failure: the result that every other run must equal.
const std::string& undisturbed() {
  static const std::string bytes = [] {
    Folder directory;
    const Ended ended = run(command(standalone(1), directory / "out"));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    return model(directory / "out");
  }();
  return bytes;
}

// The number that follows `words` in a text; -1 if they are not in it.
long number_after(const std::string& words, const std::string& text) {
  const std::size_t at = text.find(words);
  return at == std::string::npos ? -1 : std::strtol(text.c_str() + at + words.size(), nullptr, 10);
}

}  // namespace

TEST_CASE("two lanes, and 2, 3 or 4 workers, give the bytes of one worker with one lane") {
  for (const auto& shape : {std::pair{1, 2}, {2, 1}, {3, 1}, {4, 1}, {2, 2}}) {
    const int workers = shape.first;
    const int lanes = shape.second;
    CAPTURE(workers);
    CAPTURE(lanes);
    Folder directory;
    const Ended ended = run(command(standalone(workers, lanes), directory / "out"));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(model(directory / "out") == undisturbed());
  }
}

TEST_CASE("two agents with 1 and 2 workers give the bytes of one worker") {
  Folder directory;
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const std::string& workers) {
    return command({"--nnodes", "2", "--rdzv_endpoint", endpoint, "--rdzv_id", "pair", "--nproc_per_node",
                    workers, "--lanes", "1"},
                   directory / "out");
  };
  Process first(node("1")), second(node("2"));
  const Ended a = first.end(), b = second.end();
  CHECK_MESSAGE(a.exit_code == 0, a.err);
  CHECK_MESSAGE(b.exit_code == 0, b.err);
  CHECK(model(directory / "out") == undisturbed());
}

TEST_CASE("a worker killed between two checkpoints changes no byte") {
  Folder directory;
  for (const std::string recovery : {"memory", "checkpoint"}) {
    CAPTURE(recovery);
    std::vector<std::string> options = standalone(2);
    options.insert(options.end(), {"--max_restarts", "1", "--recovery", recovery});
    // More steps than elsewhere, so that the kill finds the run in its middle.
    Process job(command(options, directory / recovery, {"train.max_steps=150"}));
    REQUIRE(eventually(
        [&] { return metrics_lines(directory / recovery) >= 13 && has_checkpoint(directory / recovery); }));
    const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
    REQUIRE(workers.size() == 2);
    kill(workers[1], SIGKILL);
    const Ended ended = job.end();
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.err.find("SIGKILL") != std::string::npos);
    CHECK(ended.err.find("restart 1 of 1") != std::string::npos);
    // The bytes do not tell where the next generation begins.
    if (recovery == "memory") {
      CHECK(number_after("going on at step ", ended.err) >= 12);
      CHECK(ended.err.find("done again") == std::string::npos);
    } else {
      const long from = number_after("resumed from step ", ended.err);
      CHECK(from >= 5);
      CHECK(from % 5 == 0);
    }
  }
  const Ended calm = run(command(standalone(2), directory / "calm", {"train.max_steps=150"}));
  REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);
  CHECK(model(directory / "memory") == model(directory / "calm"));
  CHECK(model(directory / "checkpoint") == model(directory / "calm"));
}

TEST_CASE("a run stopped by SIGTERM and resumed with another number of workers changes no byte") {
  Folder directory;
  Process job(command(standalone(2), directory / "stopped", {"train.max_steps=150"}));
  REQUIRE(eventually([&] { return metrics_lines(directory / "stopped") >= 13; }));
  job.signal(SIGTERM);
  const Ended stopped = job.end();
  CHECK_MESSAGE(stopped.exit_code == 143, stopped.err);
  CHECK_FALSE(std::filesystem::exists(directory / "stopped/model.safetensors"));

  const Ended resumed = run(command(standalone(3), directory / "stopped", {"train.max_steps=150"}));
  REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.err);
  const long at = number_after("stopped after step ", stopped.err);
  CHECK_MESSAGE(at >= 12, stopped.err);
  CHECK_MESSAGE(number_after("resumed from step ", resumed.err) == at, resumed.err);
  const Ended calm = run(command(standalone(1), directory / "calm", {"train.max_steps=150"}));
  REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);
  CHECK(model(directory / "stopped") == model(directory / "calm"));
}

TEST_CASE("once restarts are used up, the job ends with the first failure's code and names the culprit") {
  Folder directory;
  std::vector<std::string> options = standalone(2);
  options.insert(options.end(), {"--max_restarts", "0"});
  Process job(command(options, directory / "out", {"train.max_steps=2000"}));
  REQUIRE(eventually([&] { return metrics_lines(directory / "out") >= 3; }));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 2);
  kill(workers[0], SIGKILL);
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 137, ended.err);
  CHECK_MESSAGE(ended.err.find(std::to_string(workers[0])) != std::string::npos, ended.err);
  CHECK_MESSAGE(ended.err.find("SIGKILL") != std::string::npos, ended.err);
  for (pid_t worker : workers) CHECK(kill(worker, 0) != 0);
}

TEST_CASE("kill -9 of the agent leaves no worker alive") {
  Folder directory;
  Process job(command(standalone(2), directory / "out", {"train.max_steps=2000"}));
  REQUIRE(eventually([&] { return metrics_lines(directory / "out") >= 3; }));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 2);
  job.signal(SIGKILL);
  CHECK(job.end().exit_code == 137);
  for (pid_t worker : workers)
    CHECK(eventually([&] { return kill(worker, 0) != 0; }, std::chrono::seconds(10)));
}

}  // namespace dtrun::promise_test
