// How the config's `launch` spells workers, lanes and nodes.
#pragma once

#include <algorithm>
#include <string_view>

#include "worker/config/field.h"

namespace dtrun::worker {

inline bool is_count(std::string_view text) {
  return !text.empty() && text.size() <= 6 && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

inline bool is_nproc(std::string_view text) {
  return is_count(text) || text == "auto" || text == "cpu" || text == "gpu";
}

inline bool is_lanes(std::string_view text) { return is_count(text) || text == "auto"; }

inline int number_of(std::string_view count) {
  int value = 0;
  for (char digit : count) value = 10 * value + (digit - '0');
  return value;
}

inline bool is_node_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return is_count(text);
  const std::string_view min = text.substr(0, colon), max = text.substr(colon + 1);
  return is_count(min) && is_count(max) && number_of(min) <= number_of(max);
}

inline constexpr Spelling kNproc{is_nproc, R"(a number of workers, "auto", "cpu" or "gpu")",
                                 "^([1-9][0-9]{0,5}|auto|cpu|gpu)$"};
inline constexpr Spelling kLanes{is_lanes, R"(a number of lanes or "auto")", "^([1-9][0-9]{0,5}|auto)$"};
inline constexpr Spelling kNodes{is_node_range, R"(a number of nodes, or "MIN:MAX" such as "1:4")",
                                 "^[1-9][0-9]{0,5}(:[1-9][0-9]{0,5})?$"};

}  // namespace dtrun::worker
