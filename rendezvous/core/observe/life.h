// What a run did with its time, as spans one after the other: for a picture, in fixed memory. The seconds of
// goodput are exact; here short spans go to their neighbours once there are too many. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/core/goodput.h"
#include "proto/core/millis.h"

namespace dtrun::rendezvous {

struct LifeSpan {
  const GoodputKind* kind = nullptr;  // null: the run is over
  Millis begin = 0;                   // it lasts until the next one's

  bool operator==(const LifeSpan&) const = default;
};

class Life {
 public:
  static constexpr std::size_t kMost = 512;

  // From `now` on the run does this. True if that is news.
  bool note(const GoodputKind* kind, Millis now);
  const std::vector<LifeSpan>& spans() const { return spans_; }

 private:
  std::vector<LifeSpan> spans_;  // neighbours differ
};

}  // namespace dtrun::rendezvous
