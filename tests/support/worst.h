// The largest of many errors, where std::max would pass over one that is not a number.
#pragma once

#include <cmath>

namespace dtrun::test {

// NaN if either is.
inline double worst_of(double worst, double error) {
  return std::isnan(error) || error > worst ? error : worst;
}

}  // namespace dtrun::test
