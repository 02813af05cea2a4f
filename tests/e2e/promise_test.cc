// The promise: the same config gives the same bytes, for any division of the work and any failures. Real
// dtrun, real workers; the division also on the real data set.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"

namespace dtrun::promise_test {

using namespace dtrun::test;

namespace {

// A checkpoint every 5 steps: none falls on the last one. Images are changed at random, which no division of
// the work may change.
const std::vector<std::string> kJob{"train.save_steps=5", "data.random_crop_padding=2",
                                    "data.random_horizontal_flip=0.5"};
const std::vector<std::string> kShort = joined(kJob, {"train.max_steps=24"});

// The number that follows `words` in a text; -1 if they are not in it.
long number_after(const std::string& words, const std::string& text) {
  const std::size_t at = text.find(words);
  return at == std::string::npos ? -1 : std::strtol(text.c_str() + at + words.size(), nullptr, 10);
}

}  // namespace

TEST_CASE("two lanes, and 2, 3 or 4 workers, give the bytes of one worker with one lane") {
  const Folder directory;
  const auto trained = [&](int workers, int lanes) {
    CAPTURE(workers);
    CAPTURE(lanes);
    const auto output = directory / (std::to_string(workers) + "x" + std::to_string(lanes));
    const Ended ended = run(training_on_real_images(standalone(workers, lanes), output, kShort));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    return model(output);
  };
  const std::string alone = trained(1, 1);
  for (const auto& [workers, lanes] : {std::pair{1, 2}, {2, 1}, {3, 1}, {4, 1}, {2, 2}})
    CHECK(trained(workers, lanes) == alone);
}

TEST_CASE("two agents with 1 and 2 workers give the bytes of one worker") {
  Folder directory;
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const std::string& workers) {
    return training({"--nnodes", "2", "--rdzv_endpoint", endpoint, "--rdzv_id", "pair", "--nproc_per_node",
                     workers, "--lanes", "1"},
                    directory / "out", kShort);
  };
  Process first(node("1")), second(node("2"));
  const Ended a = first.end(), b = second.end();
  CHECK_MESSAGE(a.exit_code == 0, a.err);
  CHECK_MESSAGE(b.exit_code == 0, b.err);
  CHECK(model(directory / "out") == quiet_model(24, kJob));
}

TEST_CASE("a worker killed between two checkpoints changes no byte") {
  const Site calm;
  const Ended alone = run(calm.command(standalone(1), kShort));
  REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
  for (const std::string recovery : {"memory", "checkpoint"}) {
    CAPTURE(recovery);
    const Site site;
    std::vector<std::string> options = standalone(2);
    options.insert(options.end(), {"--max_restarts", "1", "--recovery", recovery});
    Stop stop = killed("updated", 1, 13);
    stop.after = {"out/checkpoints/step-00000010"};
    Process job(site.command(options, kShort), site.environment({stop}));
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
      CHECK(number_after("resumed from step ", ended.err) == 10);
    }
    CHECK(model(site.output()) == model(calm.output()));
  }
}

TEST_CASE("a run stopped by SIGTERM and resumed with another number of workers changes no byte") {
  Folder directory;
  Process job(endless_training(standalone(2), directory / "out", kJob));
  REQUIRE(trains(directory / "out", 13));
  job.signal(SIGTERM);
  const Ended stopped = job.end();
  CHECK_MESSAGE(stopped.exit_code == 143, stopped.err);
  CHECK_FALSE(std::filesystem::exists(directory / "out/model.safetensors"));

  const int at = static_cast<int>(number_after("stopped after step ", stopped.err));
  CHECK_MESSAGE(at >= 12, stopped.err);
  const Ended resumed = run(training(standalone(3), directory / "out",
                                     joined(kJob, {"train.max_steps=" + std::to_string(at + 24)})));
  REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.err);
  CHECK_MESSAGE(number_after("resumed from step ", resumed.err) == at, resumed.err);
  CHECK(model(directory / "out") == quiet_model(at + 24, kJob));
}

TEST_CASE("a signal to all processes at once keeps the state") {
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) {
    Folder directory;
    Process job(endless_training(standalone(2), directory / "out"));
    REQUIRE(trains(directory / "out", 3));
    for (const pid_t worker : workers_of(job, 2)) kill(worker, number);
    job.signal(number);
    const Ended ended = job.end();
    CHECK(ended.exit_code == 128 + number);
    CHECK_MESSAGE(contains(ended.err, "; checkpoint saved"), ended.err);
  }
}

TEST_CASE("once restarts are used up, the job ends with the first failure's code and names the culprit") {
  Folder directory;
  std::vector<std::string> options = standalone(2);
  options.insert(options.end(), {"--max_restarts", "0"});
  Process job(endless_training(options, directory / "out"));
  REQUIRE(trains(directory / "out", 3));
  const std::vector<pid_t> workers = workers_of(job, 2);
  kill(workers[0], SIGKILL);
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 137, ended.err);
  CHECK_MESSAGE(ended.err.find(std::to_string(workers[0])) != std::string::npos, ended.err);
  CHECK_MESSAGE(ended.err.find("SIGKILL") != std::string::npos, ended.err);
  for (pid_t worker : workers) CHECK(kill(worker, 0) != 0);
}

TEST_CASE("kill -9 of the agent leaves no worker alive") {
  Folder directory;
  Process job(endless_training(standalone(2), directory / "out"));
  REQUIRE(trains(directory / "out", 3));
  const std::vector<pid_t> workers = workers_of(job, 2);
  job.signal(SIGKILL);
  CHECK(job.end().exit_code == 137);
  for (pid_t worker : workers) CHECK(eventually([&] { return kill(worker, 0) != 0; }));
}

}  // namespace dtrun::promise_test
