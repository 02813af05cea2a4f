// A command that gets a training's events, and commands that would like to disturb it.
#include <doctest/doctest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/training.h"

namespace dtrun::on_event_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

constexpr int kSteps = 60;

std::vector<std::string> training_with(const std::string& command, const std::filesystem::path& output) {
  std::vector<std::string> options = standalone(2);
  options.insert(options.end(), {"--max_restarts", "1", "--on_event", command});
  return training(options, output, {"train.max_steps=" + std::to_string(kSteps), "train.save_steps=1000000"});
}

std::vector<json> events_in(const std::filesystem::path& file) {
  std::vector<json> events;
  std::istringstream lines(read_if_there(file));
  for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line));
  return events;
}

}  // namespace

TEST_CASE("a command hears of the start, of a worker that is lost, and of the end") {
  const Folder folder;
  Process job(training_with("cat >>'" + (folder / "events").string() + "'", folder / "out"));
  REQUIRE(eventually([&] { return metrics_lines(folder / "out") >= 10; }, Process::Duration(60000)));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 2);
  kill(workers[1], SIGKILL);
  const Ended ended = job.end(std::chrono::minutes(3));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const std::vector<json> events = events_in(folder / "events");
  REQUIRE(events.size() >= 4);
  CHECK(events.front()["event"] == "start_workers");
  CHECK(events[1]["event"] == "start_workers");
  CHECK(contains(events[1]["reason"].get<std::string>(), "SIGKILL"));
  CHECK(events.back()["event"] == "end");
  CHECK(events.back()["exit_code"] == 0);
  CHECK(events.back()["goodput"] > 0);
}

TEST_CASE("commands that hang, crash and flood change no bit") {
  for (const char* command : {"sleep 1000", "kill -SEGV $$", "yes"}) {
    CAPTURE(command);
    const Folder folder;
    Process job(training_with(command, folder / "out"));
    const Ended ended = job.end(std::chrono::minutes(3));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    const std::string fault = "--on_event: the command";
    CHECK_MESSAGE(contains(ended.err, fault), ended.err);
    CHECK(ended.err.find(fault) == ended.err.rfind(fault));
    CHECK(model(folder / "out") == quiet_model(kSteps));
  }
}

}  // namespace dtrun::on_event_test
