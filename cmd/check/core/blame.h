// Who is to blame for bad entries in a matrix of paths between nodes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::cmd {

// Bad paths that have one cause: a node, if most of what comes from it or goes to it is bad; else one path,
// in one direction or both.
struct Blame {
  int node = 0;
  int other = -1;  // the end of a path
  bool both_ways = false;

  bool operator==(const Blame&) const = default;
  bool covers(int from, int to) const;
};

// Whether the path is bad; nothing: not known, so it speaks for nothing.
using IsBad = std::function<std::optional<bool>(int from, int to)>;

// Never asks for a node itself. Most entries first. Two thirds of what is known are most, from two bad ones
// on: one more cause may be elsewhere. Of two nodes only paths are named.
std::vector<Blame> blame(int nodes, const IsBad& bad);

// "node3", "node3 -> node1", "node3 <-> node1"
std::string subject_of(const Blame& blame, const std::vector<std::string>& names);

}  // namespace dtrun::cmd
