#include "proto/core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace dtrun {
namespace {

char folded(char c) { return c == '-' ? '_' : c; }

bool same(char a, char b) { return folded(a) == folded(b); }

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);  // rows i - 2, i - 1, i
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = above[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view typed, std::span<const std::string> names) {
  const std::size_t limit = (typed.size() + 2) / 3;
  std::string best;
  std::size_t best_distance = limit + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(typed, name);
    if (distance < best_distance && distance < std::max(typed.size(), name.size())) {
      best = name;
      best_distance = distance;
    }
  }
  if (!best.empty() || typed.size() < 3) return best;
  // The beginning of a single name's words: "label" of "label_column".
  for (const std::string& name : names) {
    if (name.size() <= typed.size() + 1 || !name.starts_with(typed) || folded(name[typed.size()]) != '_')
      continue;
    if (!best.empty()) return "";
    best = name;
  }
  return best;
}

}  // namespace dtrun
