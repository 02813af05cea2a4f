#include "agent/output/progress_json.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace dtrun::progress_json_test {

using namespace dtrun::agent;

TEST_CASE("progress as JSON has the names of metrics.jsonl, in one line") {
  Progress progress;
  progress.phase = Progress::Phase::kTraining;
  progress.step = 120;
  progress.total_steps = 2345;
  progress.epoch = 0.25;
  progress.loss = 0.5;
  progress.learning_rate = 0.05;
  progress.samples_per_second = 9812;
  progress.accuracy = 0.75;
  CHECK(progress_json(progress, 11, {2, 4}, 1700000000.5) ==
        R"({"event":"progress","phase":"training","step":120,"total_steps":2345,"epoch":0.25,"loss":0.5,)"
        R"("learning_rate":0.05,"samples_per_second":9812.0,"accuracy":0.75,"seconds_left":11.0,)"
        R"("world_size":4,"generation":2,"time":1700000000.5})");
}

TEST_CASE("what is not known yet, or not finite, is null") {
  Progress progress;
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = nlohmann::json::parse(progress_json(progress, {}, {1, 1}, 0));
  CHECK(json["phase"] == "loading");
  CHECK(json["loss"].is_null());
  CHECK(json["accuracy"].is_null());
  CHECK(json["seconds_left"].is_null());
  progress.phase = Progress::Phase::kEvaluating;
  CHECK(nlohmann::json::parse(progress_json(progress, {}, {1, 1}, 0))["phase"] == "evaluating");
  progress.phase = Progress::Phase::kSaving;
  CHECK(nlohmann::json::parse(progress_json(progress, {}, {1, 1}, 0))["phase"] == "saving");
}

}  // namespace dtrun::progress_json_test
