#include "cmd/history/run_history.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "cmd/history/page.h"

namespace dtrun::cmd::run_history_test {
namespace {

using Json = nlohmann::ordered_json;

RunRecord some_record() {
  std::istringstream metrics(
      R"({"event":"start","step":0,"world_size":2,"generation":1,"parameters":10,"device":"cpu","time":100}
{"event":"train","step":1,"loss":4,"learning_rate":0.1,"samples_per_second":50,"wait_gradients":0.25,"wait_data":0.125,"other":0.125,"world_size":2,"time":101}
{"event":"start","step":1,"world_size":2,"generation":2,"time":102}
{"event":"train","step":2,"loss":2,"learning_rate":0.1,"samples_per_second":70,"wait_gradients":0.5,"wait_data":0,"other":0,"world_size":2,"brand_new":3,"time":103}
{"event":"eval","step":2,"loss":3,"accuracy":0.75,"time":104}
)");
  RunRecord record;
  record.name = "runs/a";
  record.metrics = read_metrics(metrics);
  record.report = Json::parse(R"({"format":1,"run_id":"m","exit_code":0,"reason":"all succeeded",
    "restarts":{"used":1,"allowed":3},"membership_changes":0,"verdict":{"text":"rank 3 is slow"},
    "goodput":{"ratio":0.75,"training":7.5,"redone":0.5,"down":2.0,"steps_redone":4}})");
  record.config =
      Json::parse(R"({"output_dir":"runs/a","train":{"learning_rate":0.1,"betas":[1,2]},"empty":{}})");
  return record;
}

const RunFact* fact(const RunHistory& run, const std::string& name) {
  const auto found = std::ranges::find(run.facts, name, &RunFact::name);
  return found == run.facts.end() ? nullptr : &*found;
}

const Chart* chart(const std::vector<Chart>& charts, const std::string& title) {
  const auto found = std::ranges::find(charts, title, &Chart::title);
  return found == charts.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("a run is told with its outcome, its numbers, its curves and its config") {
  const RunHistory run = history_of(some_record());
  CHECK(run.outcome == "over, exit code 0: all succeeded");
  CHECK(run.verdict == "rank 3 is slow");
  CHECK(report_page(run).find("<strong>rank 3 is slow</strong>") != std::string::npos);
  CHECK_FALSE(run.failed);
  REQUIRE(fact(run, "goodput"));
  CHECK(fact(run, "goodput")->text == "75.00 %");
  CHECK(fact(run, "time in all")->value == 10);
  CHECK(fact(run, "time: down")->value == 2);
  CHECK(fact(run, "steps redone")->value == 4);
  CHECK(fact(run, "restarts")->value == 1);
  CHECK(fact(run, "loss")->value == 2);
  CHECK(fact(run, "evaluation: accuracy")->text == "75.00 %");
  CHECK(fact(run, "samples per second, median")->value == 70);
  CHECK(fact(run, "tokens per second, median") == nullptr);
  const Chart* loss = chart(run.charts, "loss");
  REQUIRE(loss);
  REQUIRE(loss->curves.size() == 2);
  CHECK(loss->curves[0].points == Curve{{1, 4}, {2, 2}});
  CHECK(loss->curves[1].points == Curve{{2, 3}});
  CHECK(chart(run.charts, "workers") == nullptr);  // always two
  REQUIRE(chart(run.charts, "brand_new"));
  CHECK(run.generation_steps == std::vector<CurvePoint>{{1, 2}});
  CHECK(run.config == std::vector<std::pair<std::string, std::string>>{{"output_dir", "runs/a"},
                                                                       {"train.learning_rate", "0.1"},
                                                                       {"train.betas", "[1,2]"},
                                                                       {"empty", "{}"}});
}

TEST_CASE("what is neither wait nor other is math, and the shares are one stack") {
  const RunHistory run = history_of(some_record());
  const Chart* shares = chart(run.charts, "where a step goes, share of its time");
  REQUIRE(shares);
  CHECK(shares->stacked);
  REQUIRE(shares->curves.size() == 4);
  CHECK(shares->curves[0].name == "math");
  CHECK(shares->curves[0].points == Curve{{1, 0.5}, {2, 0.5}});
}

TEST_CASE("a run without a report says that, and has no goodput") {
  RunRecord record = some_record();
  record.report = nullptr;
  const RunHistory run = history_of(std::move(record));
  CHECK(run.outcome.starts_with("no report.json: it goes on"));
  CHECK(run.goodput.empty());
  CHECK(fact(run, "goodput") == nullptr);
}

TEST_CASE("files of any other content make a page, too") {
  for (const char* text : {"{}", R"({"exit_code":"x","reason":7,"goodput":[],"restarts":5})",
                           R"({"exit_code":1,"goodput":{"ratio":"y","training":-5}})"}) {
    RunRecord record;
    record.report = record.config = Json::parse(text);
    const RunHistory run = history_of(std::move(record));
    CHECK_FALSE(run.outcome.empty());
    CHECK(report_page(run).ends_with("</html>\n"));
    CHECK(to_json(run, 10)["version"] == 1);
  }
}

TEST_CASE("a comparison names what differs, with the change of numbers") {
  RunRecord other = some_record();
  other.name = "runs/b";
  other.report["exit_code"] = 1;
  other.config["train"]["learning_rate"] = 0.2;
  other.config["train"]["seed"] = 7;
  other.metrics.train["loss"].back().value = 1;
  const RunHistory a = history_of(some_record()), b = history_of(std::move(other));
  const Comparison comparison = comparison_of(a, b);
  REQUIRE(comparison.config.size() == 2);
  CHECK(comparison.config[0].name == "train.learning_rate");
  CHECK(comparison.config[0].a == "0.1");
  CHECK(comparison.config[0].b == "0.2");
  CHECK(comparison.config[1].name == "train.seed");
  CHECK(comparison.config[1].a == "–");
  const auto loss = std::ranges::find(comparison.facts, "loss", &Difference::name);
  REQUIRE(loss != comparison.facts.end());
  CHECK(loss->change == "-50.0 %");
  const auto same = std::ranges::find(comparison.facts, "restarts", &Difference::name);
  CHECK(same->change.empty());
  const Chart* curves = chart(comparison.charts, "loss");
  REQUIRE(curves);
  REQUIRE(curves->curves.size() == 4);
  CHECK(curves->curves[0].name == "A training");
  CHECK(curves->curves[2].name == "B training");
  CHECK(curves->curves[2].points.back().value == 1);
  CHECK(comparison_of(a, a).config.empty());
}

TEST_CASE("nothing in the files can become markup or script") {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=\"alert(1)\">";
  RunRecord record = some_record();
  record.name = evil;
  record.report["reason"] = record.report["run_id"] = evil;
  record.config[evil] = evil;
  record.remarks = {evil};
  record.metrics.train[evil] = {{1, 2}};
  std::istringstream events(
      Json{{"time", 1}, {"host", evil}, {"agent", 1}, {"event", "start_workers"}, {"reason", evil}}.dump() +
      "\n" + Json{{"time", 2}, {"host", evil}, {"agent", 1}, {"event", "news"}, {"text", evil}}.dump() +
      "\n" + Json{{"time", 3}, {"host", evil}, {"agent", 1}, {"event", "report"}, {"text", evil}}.dump());
  record.life = read_events(events, 0);
  record.report["exit_code"] = 1;
  const RunHistory run = history_of(std::move(record));
  for (const std::string& page : {report_page(run), comparison_page(run, run, comparison_of(run, run))}) {
    CHECK(page.find("alert(1)") != std::string::npos);
    CHECK(page.find("<script>alert") == std::string::npos);
    CHECK(page.find("<img") == std::string::npos);
  }
}

TEST_CASE("the page of 100,000 steps is below a megabyte") {
  RunRecord record = some_record();
  for (auto* curves : {&record.metrics.train, &record.metrics.eval})
    for (auto& [name, curve] : *curves) {
      curve.clear();
      for (int step = 1; step <= 100000; ++step) curve.push_back({step, 1.0 / (step + 0.123456789)});
    }
  const RunHistory run = history_of(std::move(record));
  const std::string page = report_page(run);
  CHECK(page.size() > 400'000);
  CHECK(page.size() < 1'000'000);
  CHECK(comparison_page(run, run, comparison_of(run, run)).size() < 1'000'000);
}

}  // namespace dtrun::cmd::run_history_test
