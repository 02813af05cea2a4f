#include "worker/metrics/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/base/error.h"

namespace dtrun::worker::metrics_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::write_text;

using Json = nlohmann::ordered_json;

struct Metrics {
  Folder directory;

  std::unique_ptr<MetricsWriter> open(std::int64_t resume_step) {
    return std::make_unique<MetricsWriter>(directory.path() / "out", resume_step,
                                           [](const std::string& text) { FAIL(text); });
  }
  std::filesystem::path path() const { return directory.path() / "out" / "metrics.jsonl"; }
  std::vector<Json> lines() const {
    std::istringstream text(read_text(path()));
    std::vector<Json> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::string events() const {
    std::string events;
    for (const Json& line : lines()) {
      events += line["event"].get<std::string>() + std::to_string(line["step"].get<int>()) + " ";
    }
    return events;
  }
};

TEST_CASE("a beginning has who trains and from where, and a save for how long the training stood") {
  Metrics metrics;
  const auto writer = metrics.open(0);
  writer->write(StartMetrics{
      .step = 0, .parameters = 21840, .world_size = 2, .lanes = 3, .generation = 1, .from = "checkpoint"});
  writer->write(SaveMetrics{.step = 50, .stall_milliseconds = 1.5});
  const auto lines = metrics.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].dump().starts_with(
      R"({"event":"start","step":0,"parameters":21840,"world_size":2,"lanes":3,"generation":1,)"
      R"("from":"checkpoint","device":"cpu","time":)"));
  CHECK(lines[1].dump().starts_with(R"({"event":"save","step":50,"stall_milliseconds":1.5,"time":)"));
}

TEST_CASE("beginning and end tell by what a device computed, if it has anything to tell") {
  Metrics metrics;
  const auto writer = metrics.open(0);
  const DeviceUse use{.parts = {{"graphs", "none can be recorded"}}, .fallbacks = {"slower"}};
  writer->write(StartMetrics{.use = use});
  writer->write(EndMetrics{.step = 5, .params_sha256 = "ab", .use = use});
  writer->write(EndMetrics{.step = 6, .params_sha256 = "ab"});
  const auto lines = metrics.lines();
  REQUIRE(lines.size() == 3);
  for (const Json& line : {lines[0], lines[1]}) {
    CHECK(line["device_uses"].dump() == R"({"graphs":"none can be recorded"})");
    CHECK(line["device_fallbacks"].dump() == R"(["slower"])");
  }
  CHECK_FALSE(lines[2].contains("device_uses"));
}

TEST_CASE("who goes on at a step writes its beginning anew, and keeps those of earlier steps") {
  Metrics metrics;
  const auto start = [](std::int64_t step, std::int64_t generation) {
    return StartMetrics{.step = step, .generation = generation};
  };
  const auto first = metrics.open(0);
  first->write(start(0, 1));
  first->write(TrainMetrics{.step = 10});
  first->write(SaveMetrics{.step = 10});
  metrics.open(10)->write(start(10, 2));
  CHECK(metrics.events() == "start0 train10 save10 start10 ");
  metrics.open(10)->write(start(10, 3));
  CHECK(metrics.events() == "start0 train10 save10 start10 ");
  metrics.open(0)->write(start(0, 4));
  CHECK(metrics.events() == "start0 ");
}

TEST_CASE("a device with memory of its own has three more numbers in each line of training") {
  Metrics metrics;
  const auto writer = metrics.open(0);
  writer->write(TrainMetrics{.step = 1});
  writer->write(TrainMetrics{.step = 2, .memory = DeviceMemory{.used = 5, .peak = 6, .total = 7}});
  const auto lines = metrics.lines();
  CHECK_FALSE(lines[0].contains("gpu_memory_used"));
  CHECK(lines[1]["gpu_memory_used"] == 5);
  CHECK(lines[1]["gpu_memory_peak"] == 6);
  CHECK(lines[1]["gpu_memory_total"] == 7);
}

TEST_CASE("lines have the documented fields in the documented order") {
  Metrics metrics;
  metrics.open(0)->write(TrainMetrics{.step = 50,
                                      .epoch = 0.5,
                                      .loss = 1.25,
                                      .learning_rate = 0.01,
                                      .grad_norm = 2,
                                      .samples_per_second = 1000,
                                      .world_size = 2,
                                      .generation = 3});
  metrics.open(50)->write(EvalMetrics{50, 0.5, 0.875});
  metrics.open(50)->write(EndMetrics{50, "abc"});
  const auto lines = metrics.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].dump().starts_with(
      R"({"event":"train","step":50,"epoch":0.5,"loss":1.25,"learning_rate":0.01,"grad_norm":2.0,)"
      R"("samples_per_second":1000.0,"world_size":2,"generation":3,)"));
  CHECK(lines[0]["time"].get<double>() > 1.6e9);
  CHECK(lines[1].dump().starts_with(R"({"event":"eval","step":50,"loss":0.5,"accuracy":0.875)"));
  CHECK(lines[2].dump().starts_with(R"({"event":"end","step":50,"params_sha256":"abc")"));
}

TEST_CASE("a loss that is not finite becomes null, so that every line stays JSON") {
  Metrics metrics;
  metrics.open(0)->write(TrainMetrics{.step = 1, .loss = std::nan(""), .grad_norm = INFINITY});
  CHECK(metrics.lines()[0]["loss"].is_null());
  CHECK(metrics.lines()[0]["grad_norm"].is_null());
}

TEST_CASE("resuming drops the lines of steps that will be computed again, and an earlier end") {
  Metrics metrics;
  {
    const auto writer = metrics.open(0);
    for (std::int64_t step : {50, 100, 150}) {
      writer->write(TrainMetrics{.step = step});
      writer->write(EvalMetrics{step, 0, 0});
    }
    writer->write(EndMetrics{150, ""});
  }
  metrics.open(100)->write(TrainMetrics{.step = 150});
  CHECK(metrics.events() == "train50 eval50 train100 eval100 train150 ");
  metrics.open(0);
  CHECK(metrics.events() == "");
}

TEST_CASE("the step that a run resumes from is evaluated again, but written once") {
  Metrics metrics;
  metrics.open(0)->write(EvalMetrics{50, 0.5, 0.9});
  {
    const auto writer = metrics.open(50);
    writer->write(EvalMetrics{50, 0.5, 0.9});
    writer->write(EvalMetrics{100, 0.4, 0.95});
  }
  CHECK(metrics.events() == "eval50 eval100 ");
  metrics.open(75)->write(EvalMetrics{75, 0.5, 0.9});
  CHECK(metrics.events() == "eval50 eval75 ");
}

TEST_CASE("a line that another rank may have written is written by its successor if it is missing") {
  Metrics metrics;
  metrics.open(0)->write(TrainMetrics{.step = 50});
  metrics.open(50)->write(TrainMetrics{.step = 50});
  CHECK(metrics.events() == "train50 ");
  {
    const auto writer = metrics.open(100);
    writer->write(TrainMetrics{.step = 100});
    writer->write(TrainMetrics{.step = 150});
  }
  CHECK(metrics.events() == "train50 train100 train150 ");
}

TEST_CASE("a torn last line and lines that are no objects are dropped, foreign ones kept") {
  Metrics metrics;
  metrics.open(0);
  write_text(metrics.path(), "{\"step\":1}\nnoise\n{\"note\":\"mine\"}\n[1]\n{\"event\":\"train\",\"st");
  metrics.open(1);
  CHECK(read_text(metrics.path()) == "{\"step\":1}\n{\"note\":\"mine\"}\n");
}

TEST_CASE("what somebody else wrote behind the lines that are dropped stays, in its order") {
  Metrics metrics;
  metrics.open(0);
  write_text(
      metrics.path(),
      "{\"step\":1}\n{\"step\":2}\n{\"n\":1}\n{\"event\":\"eval\",\"step\":2}\n{\"step\":3}\n{\"n\":2}\n"
      "{\"step\":4}\n{\"n\":3}\n");
  metrics.open(2)->write(EvalMetrics{.step = 2});  // the line is there already
  const std::string kept =
      "{\"step\":1}\n{\"step\":2}\n{\"n\":1}\n{\"event\":\"eval\",\"step\":2}\n{\"n\":2}\n{\"n\":3}\n";
  CHECK(read_text(metrics.path()) == kept);
  metrics.open(3)->write(EvalMetrics{.step = 3});
  CHECK(contains(read_text(metrics.path()), "{\"n\":3}\n{\"event\":\"eval\",\"step\":3,"));
}

TEST_CASE("a line is found wherever it lies and however long it is") {
  for (const int length : {10, 60000, 65500, 65536, 65537, 200000}) {
    Metrics metrics;
    metrics.open(0);
    const std::string padding(static_cast<std::size_t>(length), 'x');
    std::string text, kept;
    for (int step = 1; step <= 9; ++step) {
      text += R"({"event":"train","step":)" + std::to_string(step) + R"(,"pad":")" + padding + "\"}\n";
      if (step == 4) kept = text;
    }
    write_text(metrics.path(), text + "{\"torn\":\"" + padding);
    metrics.open(4);
    CHECK(read_text(metrics.path()) == kept);
  }
}

TEST_CASE("what precedes the step from which a run goes on is not even looked at") {
  Metrics metrics;
  metrics.open(0);
  const std::string kept = "dropped if it were read\n{\"step\":5}\n{\"step\":6}\n";
  write_text(metrics.path(), kept + "{\"step\":7}\n");
  metrics.open(6);
  CHECK(read_text(metrics.path()) == kept);
}

TEST_CASE("a metrics file that cannot be opened is said by its name") {
  Metrics metrics;
  std::filesystem::create_directories(metrics.path());
  try {
    metrics.open(0);
    FAIL("opened a directory");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitCannotCreate);
    CHECK(contains(error.what(), metrics.path().string()));
  }
}

}  // namespace
}  // namespace dtrun::worker::metrics_test
