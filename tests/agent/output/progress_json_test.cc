#include "agent/output/progress_json.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>

using namespace dtrun::agent;

TEST_CASE("progress as JSON has the names of metrics.jsonl, in one line") {
  ProgressPoint point;
  point.phase = ProgressPoint::Phase::kTraining;
  point.step = 120;
  point.total_steps = 2345;
  point.epoch = 0.25;
  point.loss = 0.5;
  point.learning_rate = 0.05;
  point.samples_per_second = 9812;
  point.accuracy = 0.75;
  point.seconds_left = 11;
  CHECK(progress_json(point, {2, 4}, 1700000000.5) ==
        R"({"event":"progress","phase":"training","step":120,"total_steps":2345,"epoch":0.25,"loss":0.5,)"
        R"("learning_rate":0.05,"samples_per_second":9812.0,"accuracy":0.75,"seconds_left":11.0,)"
        R"("world_size":4,"generation":2,"time":1700000000.5})");
}

TEST_CASE("what is not known yet, or not finite, is null") {
  ProgressPoint point;
  point.loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = nlohmann::json::parse(progress_json(point, {1, 1}, 0));
  CHECK(json["phase"] == "loading");
  CHECK(json["loss"].is_null());
  CHECK(json["accuracy"].is_null());
  CHECK(json["seconds_left"].is_null());
  point.phase = ProgressPoint::Phase::kEvaluating;
  CHECK(nlohmann::json::parse(progress_json(point, {1, 1}, 0))["phase"] == "evaluating");
  point.phase = ProgressPoint::Phase::kSaving;
  CHECK(nlohmann::json::parse(progress_json(point, {1, 1}, 0))["phase"] == "saving");
}
