// A set of ranks as ranges: a text on ten thousand ranks must stay short.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// {0, 1, 2, 5} as {0-2, 5-5}. `ranks` ascends.
inline std::vector<RankRange> ranges_of(const std::vector<int>& ranks) {
  std::vector<RankRange> ranges;
  for (int rank : ranks) {
    if (ranges.empty() || ranges.back().last + 1 != rank)
      ranges.push_back({rank, rank});
    else
      ranges.back().last = rank;
  }
  return ranges;
}

// "0-2, 5"
inline std::string text_of(const std::vector<RankRange>& ranges) {
  std::string text;
  for (const RankRange& range : ranges) {
    if (!text.empty()) text += ", ";
    text += std::to_string(range.first);
    if (range.last > range.first) text += "-" + std::to_string(range.last);
  }
  return text;
}

inline bool is_one(const std::vector<RankRange>& ranges) {
  return ranges.size() == 1 && ranges[0].first == ranges[0].last;
}

// "rank 3", "ranks 0-2, 5"
inline std::string ranks_text(const std::vector<RankRange>& ranges) {
  return (is_one(ranges) ? "rank " : "ranks ") + text_of(ranges);
}

}  // namespace dtrun::rendezvous
