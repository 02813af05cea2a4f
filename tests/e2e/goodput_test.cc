// Where the time of a real training went, with a worker that is killed between two checkpoints.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"

namespace dtrun::goodput_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

// `time` of the first such event; 0 if there is none.
double time_of(const std::filesystem::path& events, const std::string& name) {
  std::istringstream lines(read_if_there(events));
  for (std::string line; std::getline(lines, line);)
    if (const json event = json::parse(line, nullptr, false); event.is_object() && event["event"] == name)
      return event["time"];
  return 0;
}

}  // namespace

TEST_CASE("seconds by kind add up to the run's time, and the steps since the checkpoint are redone") {
  constexpr int kSaved = 60, kKilled = 100;
  const Site site;
  const std::vector<std::string> options =
      joined(standalone(1), {"--max_restarts", "1", "--rdzv_id", "goodput", "--log_dir", site.mark("logs")});
  const Folder runtime;
  const Words registry{"XDG_RUNTIME_DIR=" + runtime.path().string()};
  const Stopwatch watch;
  // It stands until its agent knows of steps behind the checkpoint; a worker tells of them ten times a
  // second.
  Process job(site.command(options, {"train.max_steps=120", "train.save_steps=" + std::to_string(kSaved),
                                     "train.eval_steps=40"}),
              joined(registry, site.environment({{.point = "updated",
                                                  .count = kKilled,
                                                  .signal = SIGKILL,
                                                  .once = "stands",
                                                  .after = {"known", "out/checkpoints/step-00000060"}}})));
  int known = 0;
  const auto knows = [&] {
    const json runs = json::parse(run({kDtrun, "status", "--json", "goodput"}, registry).out, nullptr, false);
    if (runs.is_array() && runs.size() == 1)
      known = runs[0].value("progress", json::object()).value("step", 0);
    return known > kSaved;
  };
  REQUIRE_MESSAGE(eventually(knows), job.err());
  write_text(site.mark("known"), "");
  const Ended ended = job.end();
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const std::chrono::duration<double> stall = watch.wall() - watch.fair();

  const auto run = site.mark("logs/goodput");
  const json spent = json::parse(read_if_there(run / "report.json"))["goodput"];
  CAPTURE(spent.dump());
  double total = 0;
  for (const char* kind :
       {"training", "redone", "loading", "evaluating", "saving", "rendezvous", "waiting", "down"})
    total += spent[kind].get<double>();
  const double wall = time_of(run / "events.jsonl", "finished") - time_of(run / "events.jsonl", "join");
  CAPTURE(wall);
  // The job's end is told a message later.
  CHECK(std::abs(total - wall) <= std::max(0.001 * wall, 0.03) + stall.count());
  for (const char* kind : {"training", "redone", "loading", "evaluating", "saving"}) CHECK(spent[kind] > 0);
  CHECK(spent["ratio"] == doctest::Approx(spent["training"].get<double>() / total));
  const int redone = spent["steps_redone"];
  CHECK(redone >= known - kSaved);
  CHECK(redone <= kKilled - 1 - kSaved);
  CHECK_MESSAGE(contains(ended.err, "goodput "), ended.err);
  CHECK_MESSAGE(contains(ended.err, "at least " + std::to_string(redone) + " steps done again"), ended.err);
}

}  // namespace dtrun::goodput_test
