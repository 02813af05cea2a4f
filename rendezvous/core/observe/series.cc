#include "rendezvous/core/observe/series.h"

#include <algorithm>
#include <iterator>

namespace dtrun::rendezvous {

void Series::add(const Point& point) {
  while (!points_.empty() && points_.back().step >= point.step) {
    points_.pop_back();
    passed_ = 0;
  }
  if (passed_ > 0) points_.pop_back();  // it was there as the newest alone
  ++passed_;
  if (points_.size() == kMost) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
    points_.resize(kept);
    passed_ += stride_;  // the last one was dropped
    stride_ *= 2;
  }
  passed_ %= stride_;
  points_.push_back(point);
}

Series Series::newer_than(std::int64_t serial) const {
  Series newer;
  std::ranges::copy_if(points_, std::back_inserter(newer.points_),
                       [serial](const Point& point) { return point.serial > serial; });
  return newer;
}

}  // namespace dtrun::rendezvous
