#include "cmd/history/curves.h"

#include <algorithm>
#include <limits>
#include <span>

namespace dtrun::cmd {
namespace {

using Points = std::span<const CurvePoint>;

// Calls `f` with the points of each of `count` equally wide ranges of steps that has some.
template <typename F>
void for_each_range(Points points, std::size_t count, const F& f) {
  const std::int64_t first = points.front().step;
  const double width = static_cast<double>(points.back().step - first + 1) / static_cast<double>(count);
  for (std::size_t begin = 0; begin < points.size();) {
    const auto range_of = [&](const CurvePoint& point) {
      return static_cast<std::int64_t>(static_cast<double>(point.step - first) / width);
    };
    std::size_t end = begin + 1;
    while (end < points.size() && range_of(points[end]) == range_of(points[begin])) ++end;
    f(points.subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

Curve thinned(const Curve& curve, std::size_t most) {
  if (curve.size() <= most) return curve;
  Curve result{curve.front()};
  const Points inner = Points(curve).subspan(1, curve.size() - 2);
  for_each_range(inner, (most - 2) / 2, [&](Points range) {
    const auto [low, high] = std::ranges::minmax_element(range, {}, &CurvePoint::value);
    result.push_back(low < high ? *low : *high);
    if (low != high) result.push_back(low < high ? *high : *low);
  });
  result.push_back(curve.back());
  return result;
}

Curve averaged(const Curve& curve, std::size_t most) {
  if (curve.size() <= most) return curve;
  Curve result;
  for_each_range(curve, most, [&](Points range) {
    double sum = 0;
    for (const CurvePoint& point : range) sum += point.value;
    result.push_back({range.back().step, sum / static_cast<double>(range.size())});
  });
  return result;
}

double median_of(const Curve& curve) {
  if (curve.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values;
  for (const CurvePoint& point : curve) values.push_back(point.value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace dtrun::cmd
