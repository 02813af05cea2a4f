// Who is to blame for bad entries in a matrix of paths between nodes, and which pairs measure together.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::doctor {

// Bad entries that have one cause. A whole row and column: the node's card or cable; a column: what goes to
// the node; a row: what comes from it; else one path, in one direction or both.
struct Blame {
  enum class Kind { kNode, kTo, kFrom, kPath, kBothWays };
  Kind kind = Kind::kPath;
  int node = 0;
  int other = -1;  // the end of a path

  bool operator==(const Blame&) const = default;
};

// Whether the path is bad; nothing: not known, so it speaks for nothing.
using IsBad = std::function<std::optional<bool>(int from, int to)>;

// Never asks for a node itself. Most entries first. Two thirds of what is known of a row or column are the
// whole, from two bad ones on: one more cause may be elsewhere. Of two nodes only paths are named.
std::vector<Blame> blame(int nodes, const IsBad& bad);

// "node3", "to node3", "from node3", "node3 -> node1", "node3 <-> node1"
std::string subject_of(const Blame& blame, const std::vector<std::string>& names);

using Pair = std::pair<int, int>;

// The circle method: in each round disjoint pairs, and after all rounds every pair once. At most `most`
// rounds, spread over all.
std::vector<std::vector<Pair>> rounds_of(int nodes, int most);

// REQUIRES: not empty.
double median_of(std::vector<double> values);

}  // namespace dtrun::doctor
