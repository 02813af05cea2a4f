#include <algorithm>

#include "worker/schedule/schedule.h"

namespace dtrun::worker::schedule {
namespace {

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.place.space == b.place.space && a.place.offset < b.place.offset + b.bytes &&
         b.place.offset < a.place.offset + a.bytes;
}

bool any_overlap(const std::vector<ByteRange>& some, const std::vector<ByteRange>& others) {
  return std::ranges::any_of(some, [&](const ByteRange& a) {
    return std::ranges::any_of(others, [&](const ByteRange& b) { return overlap(a, b); });
  });
}

bool waits_for(const Step& a, const Step& b) {
  return std::holds_alternative<Join>(a.work) || any_overlap(a.writes, b.writes) ||
         any_overlap(a.writes, b.reads) || any_overlap(a.reads, b.writes);
}

}  // namespace

void order(std::vector<Step>& steps, int streams) {
  // seen[s][t]: stream s is after this step of stream t, and all before it.
  std::vector<std::vector<int>> seen(streams, std::vector<int>(streams, -1));
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    Step& step = steps[i];
    std::vector<int>& known = seen[step.stream];
    for (int other = 0; other < streams; ++other) {
      if (other == step.stream) continue;
      for (int j = i - 1; j > known[other]; --j) {
        if (steps[j].stream != other || !waits_for(step, steps[j])) continue;
        step.after.push_back(j);
        steps[j].awaited = true;
        known[other] = j;
        break;
      }
    }
  }
}

}  // namespace dtrun::worker::schedule
