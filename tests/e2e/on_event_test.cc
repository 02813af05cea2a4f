// A command that gets a training's events, and commands that would like to disturb it.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"

namespace dtrun::on_event_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

std::vector<std::string> options_with(const std::string& command) {
  return joined(standalone(2), {"--max_restarts", "1", "--on_event", command});
}

std::vector<json> events_in(const std::filesystem::path& file) {
  std::vector<json> events;
  std::istringstream lines(read_if_there(file));
  for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line));
  return events;
}

}  // namespace

TEST_CASE("a command hears of the start, of a worker that is lost, and of the end") {
  const Site site;
  const Ended ended = run(site.command(options_with("cat >>'" + site.mark("events").string() + "'")),
                          site.environment({killed("updated", 1, 10)}));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const std::vector<json> events = events_in(site.mark("events"));
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
    const Ended ended = run(training(options_with(command), folder / "out", {"train.max_steps=60"}));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    const std::string fault = "--on_event: the command";
    CHECK_MESSAGE(contains(ended.err, fault), ended.err);
    CHECK(ended.err.find(fault) == ended.err.rfind(fault));
    CHECK(model(folder / "out") == quiet_model(60));
  }
}

}  // namespace dtrun::on_event_test
