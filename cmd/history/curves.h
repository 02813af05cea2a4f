// Curves thinned out to what a screen can show. Pure.
#pragma once

#include <cstddef>

#include "cmd/history/metrics_log.h"

namespace dtrun::cmd {

// At most `most` points (4 or more) of the curve: of each of equally wide ranges of steps the lowest and the
// highest, so that no peak is lost, and the first and the last point. A short curve stays as it is.
Curve thinned(const Curve& curve, std::size_t most);

// At most `most` points: the mean of each range at its last step. For shares, which add up to 1.
Curve averaged(const Curve& curve, std::size_t most);

double median_of(const Curve& curve);  // NaN of none

}  // namespace dtrun::cmd
