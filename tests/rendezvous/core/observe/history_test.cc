#include "rendezvous/core/observe/history.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrun::rendezvous::history_test {
namespace {

// The trainer's report at `step`, with a line of metrics for each of `logged`.
Progress report(std::int64_t step, const std::vector<std::int64_t>& logged) {
  Progress progress{.step = step, .total_steps = 1000, .loss = 9, .times = PhaseTimes{}};
  for (const std::int64_t line : logged)
    progress.logged.push_back({.step = line,
                               .loss = 1.0 / static_cast<double>(line),
                               .learning_rate = 0.1,
                               .grad_norm = 2,
                               .samples_per_second = 500});
  return progress;
}

std::vector<std::int64_t> steps_of(const Series& series) {
  std::vector<std::int64_t> steps;
  for (const Point& point : series.points()) steps.push_back(point.step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("the curves have the lines of metrics, each once however often it is told") {
  History history;
  history.add(report(7, {}), 1, 1000);
  CHECK(history.points() == 0);  // what the trainer says between its lines is no point
  history.add(report(25, {10, 20}), 1, 2000);
  history.add(report(25, {10, 20}), 1, 2500);
  history.add(report(31, {10, 20, 30}), 1, 3000);
  CHECK(steps_of(history.of(Curve::kLoss)) == Steps{10, 20, 30});
  CHECK(history.of(Curve::kLoss).points().back().value == 1.0 / 30);
  CHECK(history.of(Curve::kLoss).points().back().at == 3000);
  CHECK(history.of(Curve::kSamplesPerSecond).points().front().value == 500);
  CHECK(history.of(Curve::kLearningRate).points().size() == 3);
  CHECK(history.of(Curve::kGradNorm).points().size() == 3);
  CHECK(history.began() == 2000);
}

TEST_CASE("a generation that begins at a checkpoint drops what came after it") {
  History history;
  history.add(report(31, {10, 20, 30}), 1, 1000);
  history.add(report(12, {}), 2, 2000);
  CHECK(steps_of(history.of(Curve::kLoss)) == Steps{10, 20, 30});
  history.add(report(20, {20}), 2, 3000);
  CHECK(steps_of(history.of(Curve::kLoss)) == Steps{10, 20});
  CHECK(history.of(Curve::kLoss).points().back().at == 3000);
}

TEST_CASE("evaluations have curves of their own, and checkpoints are events") {
  History history;
  Progress progress = report(50, {50});
  progress.evaluated = EvaluatedStep{.step = 50, .loss = 0.5, .accuracy = 0.9};
  progress.saved_step = 50;
  for (const Millis now : {1000, 2000}) history.add(progress, 1, now);
  REQUIRE(history.of(Curve::kEvalAccuracy).points().size() == 1);
  CHECK(history.of(Curve::kEvalAccuracy).points()[0].value == 0.9);
  CHECK(history.of(Curve::kEvalLoss).points()[0].step == 50);
  REQUIRE(history.events().size() == 1);
  CHECK(history.events()[0].kind == std::string("checkpoint"));
  CHECK(history.events()[0].step == 50);
}

TEST_CASE("a program without metrics of its own has a curve of what it says") {
  History history;
  history.add(Progress{.step = 3, .total_steps = 9, .loss = 2.5}, 1, 1000);
  history.add(Progress{.step = 3, .total_steps = 9, .loss = 2.5}, 1, 2000);
  history.add(Progress{.step = 4, .total_steps = 9, .loss = 2.25}, 1, 3000);
  history.add(Progress{.step = 5, .total_steps = 9}, 1, 4000);
  CHECK(steps_of(history.of(Curve::kLoss)) == Steps{3, 4});
  CHECK(history.of(Curve::kSamplesPerSecond).points().empty());
}

TEST_CASE("points and events are numbered together, so a reader asks for what it lacks") {
  History history;
  history.tell("generation", "2 nodes joined", 1, 500);
  history.add(report(10, {10}), 1, 1000);
  const std::int64_t known = history.serial();
  history.tell("failure", "rank 1 was killed", 1, 1500);
  history.add(report(20, {10, 20}), 1, 2000);
  const History newer = history.newer_than(known);
  CHECK(steps_of(newer.of(Curve::kLoss)) == Steps{20});
  REQUIRE(newer.events().size() == 1);
  CHECK(newer.events()[0].text == "rank 1 was killed");
  CHECK(newer.events()[0].step == 10);  // as far as training was known to be
  CHECK(newer.events()[0].generation == 1);
  CHECK(newer.serial() == history.serial());
}

TEST_CASE("windows of many ranks are fewer, and the words of a failure are cut") {
  History history;
  for (int i = 0; i < 200; ++i) history.add_column({1000, 1400}, 1, i);
  CHECK(history.columns().size() == History::kMostColumns);
  CHECK(history.columns().back().at == 199);
  for (int i = 0; i < 20; ++i) history.add_column(std::vector<int>(50000, 1000), 1, i);
  CHECK(history.columns().size() == 2);
  history.add_column(std::vector<int>(1'000'000, 1000), 1, 0);
  CHECK(history.columns().size() == 1);
  WorkerOutcome first;
  first.stderr_tail.assign(20, std::string(10000, 'x'));
  history.tell_failure("rank 0 failed", &first, 1, 0);
  CHECK(history.events().back().words.size() == History::kMostWords);
}

TEST_CASE("the life of a run is told anew whenever it changes, and only then") {
  History history;
  const auto *loading = &kGoodputKinds[2], *training = &kGoodputKinds[0];
  history.spend(loading, 100);
  history.spend(loading, 200);
  history.spend(training, 300);
  const std::int64_t known = history.serial();
  history.spend(training, 400);
  CHECK(history.newer_than(known).life().spans().empty());
  history.spend(nullptr, 500);
  CHECK(history.newer_than(known).life().spans() ==
        std::vector<LifeSpan>{{loading, 100}, {training, 300}, {nullptr, 500}});
}

TEST_CASE("a long life keeps its long spans, its begin and its end, in fixed memory") {
  Life life;
  const auto *loading = &kGoodputKinds[2], *training = &kGoodputKinds[0], *evaluating = &kGoodputKinds[3];
  life.note(loading, 0);
  Millis now = 1000;
  for (int round = 0; round < 5000; ++round) {
    life.note(training, now);
    if (round == 700) life.note(&kGoodputKinds[7], now + 500), now += 90000;
    life.note(evaluating, now + 1000);
    now += 1010;
  }
  CHECK(life.spans().size() <= Life::kMost);
  CHECK(life.spans().front() == LifeSpan{loading, 0});
  CHECK(life.spans().back().kind == evaluating);
  CHECK(std::ranges::count(life.spans(), &kGoodputKinds[7], &LifeSpan::kind) == 1);
  for (std::size_t i = 1; i < life.spans().size(); ++i) {
    CHECK(life.spans()[i - 1].kind != life.spans()[i].kind);
    CHECK(life.spans()[i - 1].begin < life.spans()[i].begin);
  }
}

TEST_CASE("events are few, the newest") {
  History history;
  for (int i = 0; i < 1000; ++i) history.tell("news", std::to_string(i), 1, i);
  CHECK(history.events().size() == History::kMostEvents);
  CHECK(history.events().back().text == "999");
}

}  // namespace dtrun::rendezvous::history_test
