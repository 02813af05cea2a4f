// A curve over the steps of a run, in fixed memory: however long the run is, at most kMost points, evenly
// spread over it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

struct Point {
  std::int64_t step = 0;
  double value = 0;
  Millis at = 0;            // when it came, by the coordinator's clock
  std::int64_t serial = 0;  // History's

  bool operator==(const Point&) const = default;
};

class Series {
 public:
  static constexpr std::size_t kMost = 2048;

  // A step that is not behind the newest one means that training went back: the points from there on go.
  void add(const Point& point);
  // The newest point is always there; it may go when the next one comes.
  const std::vector<Point>& points() const { return points_; }
  // Those whose serial is higher.
  Series newer_than(std::int64_t serial) const;

 private:
  std::vector<Point> points_;
  std::int64_t stride_ = 1;  // of the points that come, one in so many stays
  std::int64_t passed_ = 0;  // points that came since the last that stays
};

}  // namespace dtrun::rendezvous
