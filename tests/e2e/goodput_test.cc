// Where the time of a real training went, with a worker that is killed between two checkpoints.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/e2e/training.h"

namespace dtrun::goodput_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

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
  constexpr int kSteps = 200, kSaved = 60, kKilled = 100;
  const Folder folder;
  const auto output = folder / "out";
  std::vector<std::string> options = standalone(1);
  for (const char* option : {"--max_restarts", "1", "--rdzv_id", "goodput", "--log_dir"})
    options.emplace_back(option);
  options.push_back((folder / "logs").string());
  Process job(
      training(options, output,
               {"train.max_steps=" + std::to_string(kSteps), "train.save_steps=" + std::to_string(kSaved),
                "train.eval_steps=40", "train.global_batch_size=512", "train.micro_batch_size=64"}));
  REQUIRE(eventually([&] { return metrics_lines(output) >= kKilled; }, Process::Duration(120000)));
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 1);
  kill(workers[0], SIGSTOP);  // what it had done is then what its agent knows
  const long done = metrics_lines(output);
  kill(workers[0], SIGKILL);
  const Ended ended = job.end(std::chrono::minutes(3));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);

  const auto run = folder / "logs/goodput";
  const json spent = json::parse(read_if_there(run / "report.json"))["goodput"];
  CAPTURE(spent.dump());
  double total = 0;
  for (const char* kind :
       {"training", "redone", "loading", "evaluating", "saving", "rendezvous", "waiting", "down"})
    total += spent[kind].get<double>();
  const double wall = time_of(run / "events.jsonl", "finished") - time_of(run / "events.jsonl", "join");
  CAPTURE(wall);
  CHECK(std::abs(total - wall) <= std::max(0.001 * wall, 0.03));  // the job's end, a message later
  for (const char* kind : {"training", "redone", "loading", "evaluating", "saving"}) CHECK(spent[kind] > 0);
  CHECK(spent["ratio"] == doctest::Approx(spent["training"].get<double>() / total));
  // A worker tells of its steps ten times a second, on a machine that others use a few times less.
  const int steps_redone = spent["steps_redone"];
  CHECK(steps_redone <= done - kSaved);
  CHECK(steps_redone >= done - kSaved - 0.6 * kSteps / wall - 3);
  CHECK_MESSAGE(contains(ended.err, "goodput "), ended.err);
  CHECK_MESSAGE(contains(ended.err, "at least " + std::to_string(steps_redone) + " steps done again"),
                ended.err);
}

}  // namespace dtrun::goodput_test
