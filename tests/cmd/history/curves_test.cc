#include "cmd/history/curves.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace dtrun::cmd::curves_test {
namespace {

Curve wave(int points) {
  Curve curve;
  for (int i = 0; i < points; ++i) curve.push_back({10 + 3 * i, std::sin(0.01 * i)});
  return curve;
}

}  // namespace

TEST_CASE("a curve that fits is shown point by point") {
  CHECK(thinned(wave(500), 500) == wave(500));
  CHECK(averaged(wave(500), 500) == wave(500));
  CHECK(thinned({}, 10).empty());
  CHECK(averaged({}, 10).empty());
}

TEST_CASE("a long curve keeps each peak, both ends, and points of its own alone") {
  Curve curve = wave(100000);
  curve[70001].value = 99;
  curve[30011].value = -99;
  const Curve few = thinned(curve, 1000);
  CHECK(few.size() <= 1000);
  CHECK(few.size() > 900);
  CHECK(few.front() == curve.front());
  CHECK(few.back() == curve.back());
  CHECK(std::ranges::count(few, 99.0, &CurvePoint::value) == 1);
  CHECK(std::ranges::count(few, -99.0, &CurvePoint::value) == 1);
  CHECK(std::ranges::is_sorted(few, {}, &CurvePoint::step));
  for (const CurvePoint& point : few)
    REQUIRE(curve[static_cast<std::size_t>((point.step - 10) / 3)] == point);
}

TEST_CASE("steps that lie together do not take the room of others") {
  Curve curve = wave(1000);
  curve.push_back({1000000000, 5});
  CHECK(thinned(curve, 100).size() <= 100);
  CHECK(thinned(curve, 4).size() == 4);
}

TEST_CASE("means of shares that add up to one add up to one") {
  Curve a = wave(5000), b = a;
  for (CurvePoint& point : b) point.value = 1 - point.value;
  const Curve few_a = averaged(a, 100), few_b = averaged(b, 100);
  REQUIRE(few_a.size() == few_b.size());
  CHECK(few_a.size() == 100);
  for (std::size_t i = 0; i < few_a.size(); ++i) {
    CHECK(few_a[i].step == few_b[i].step);
    CHECK(few_a[i].value + few_b[i].value == doctest::Approx(1));
  }
}

TEST_CASE("the median is that of the values") {
  CHECK(median_of({{1, 5}, {2, 1}, {3, 100}}) == 5);
  CHECK(std::isnan(median_of({})));
}

}  // namespace dtrun::cmd::curves_test
