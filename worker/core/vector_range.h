// A contiguous piece of a flat vector, such as a bucket: the part of the gradient that is exchanged as one.
#pragma once

#include <cstddef>

namespace dtrun::worker {

struct VectorRange {
  std::size_t begin = 0, end = 0;  // in floats; `end` is the first one behind it
  std::size_t size() const { return end - begin; }
  bool operator==(const VectorRange&) const = default;
};

}  // namespace dtrun::worker
