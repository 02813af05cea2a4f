// A table of a profile as lines of text. Pure.
#pragma once

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "proto/core/text.h"

namespace dtrun::worker {

// `time` in seconds as text; empty for 0.
inline std::string milliseconds(double time) { return time == 0 ? "" : decimals(time * 1e3, 2) + " ms"; }
inline std::string percent(double share) { return decimals(share * 100, share < 0.0995 ? 1 : 0) + " %"; }

struct Column {
  const char* title;
  std::size_t width;
};

// `what` in `first` characters, and a right-aligned cell for each column, as far as there are cells.
inline std::string line(const std::string& what, std::size_t first, std::span<const Column> columns,
                        const std::vector<std::string>& cells) {
  std::string text = what + std::string(first - std::min(first, what.size()), ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t width = columns[i].width;
    text += std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

inline std::string title_line(const std::string& what, std::size_t first, std::span<const Column> columns) {
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  return line(what, first, columns, titles);
}

}  // namespace dtrun::worker
