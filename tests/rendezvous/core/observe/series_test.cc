#include "rendezvous/core/observe/series.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::series_test {
namespace {

Series with_steps(std::int64_t count) {
  Series series;
  for (std::int64_t step = 1; step <= count; ++step)
    series.add({.step = step, .value = 1.0 / static_cast<double>(step), .at = 10 * step, .serial = step});
  return series;
}

}  // namespace

TEST_CASE("a short curve has every point") {
  const Series series = with_steps(100);
  REQUIRE(series.points().size() == 100);
  CHECK(series.points()[41] == Point{.step = 42, .value = 1.0 / 42, .at = 420, .serial = 42});
}

TEST_CASE("a long curve has a bounded number of points, evenly spread, and always the newest") {
  for (const std::int64_t count : {2048, 2049, 5000, 100000, 1234567}) {
    CAPTURE(count);
    const Series series = with_steps(count);
    const std::vector<Point>& points = series.points();
    CHECK(points.size() <= Series::kMost);
    CHECK(points.size() > Series::kMost / 2);
    CHECK(points.front().step == 1);
    CHECK(points.back().step == count);
    const std::int64_t gap = points[1].step - points[0].step;
    for (std::size_t i = 1; i + 1 < points.size(); ++i) REQUIRE(points[i].step - points[i - 1].step == gap);
  }
}

TEST_CASE("training that goes back to a checkpoint takes the later points with it") {
  Series series = with_steps(100);
  series.add({.step = 51, .value = 7, .at = 2000, .serial = 101});
  REQUIRE(series.points().size() == 51);
  CHECK(series.points()[49].step == 50);
  CHECK(series.points().back().value == 7);
  series.add({.step = 1, .value = 8, .at = 2001, .serial = 102});
  CHECK(series.points().size() == 1);
}

TEST_CASE("a long curve that went back goes on evenly") {
  Series series = with_steps(5000);  // one in four stays
  series.add({.step = 1000, .value = 7, .at = 0, .serial = 5001});
  const std::size_t size = series.points().size();
  CHECK(series.points().back().step == 1000);
  for (std::int64_t step = 1001; step <= 1040; ++step) series.add({.step = step, .serial = 4001 + step});
  CHECK(series.points().size() == size + 10);
}

TEST_CASE("a reader who has a part of a curve gets the rest") {
  const Series rest = with_steps(100).newer_than(97);
  REQUIRE(rest.points().size() == 3);
  CHECK(rest.points()[0].step == 98);
  CHECK(with_steps(100).newer_than(100).points().empty());
}

}  // namespace dtrun::rendezvous::series_test
