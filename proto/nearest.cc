#include "proto/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace dtrun {
namespace {

char folded(char c) { return c == '-' ? '_' : c; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (folded(a[i - 1]) != folded(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
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
  return best;
}

}  // namespace dtrun
