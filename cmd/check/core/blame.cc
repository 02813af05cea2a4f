#include "cmd/check/core/blame.h"

#include <algorithm>

namespace dtrun::cmd {
namespace {

class PathMatrix {
 public:
  PathMatrix(int nodes, const IsBad& bad) : nodes_(nodes) {
    for (int from = 0; from < nodes; ++from)
      for (int to = 0; to < nodes; ++to) entries_.push_back(from == to ? std::nullopt : bad(from, to));
  }

  bool at(int from, int to) const { return entry(from, to).value_or(false); }
  // What one cause has made says nothing of another one.
  void clear(const Blame& blame) {
    for (int from = 0; from < nodes_; ++from)
      for (int to = 0; to < nodes_; ++to)
        if (blame.covers(from, to) && at(from, to)) entries_[index(from, to)] = false;
  }

  // The bad paths from and to a node, where they are most of those from it, or to it.
  int most(int node) const {
    int from = 0, to = 0, known_from = 0, known_to = 0;
    for (int other = 0; other < nodes_; ++other) {
      from += at(node, other) ? 1 : 0;
      to += at(other, node) ? 1 : 0;
      known_from += entry(node, other) ? 1 : 0;
      known_to += entry(other, node) ? 1 : 0;
    }
    const auto are_most = [this](int bad, int known) {
      return 3 * bad >= 2 * known && bad >= std::min(2, nodes_ - 2);
    };
    return (are_most(from, known_from) ? from : 0) + (are_most(to, known_to) ? to : 0);
  }

 private:
  std::size_t index(int from, int to) const { return static_cast<std::size_t>(from * nodes_ + to); }
  const std::optional<bool>& entry(int from, int to) const { return entries_[index(from, to)]; }

  const int nodes_;
  std::vector<std::optional<bool>> entries_;
};

}  // namespace

bool Blame::covers(int from, int to) const {
  if (other < 0) return from == node || to == node;
  return (from == node && to == other) || (both_ways && from == other && to == node);
}

std::vector<Blame> blame(int nodes, const IsBad& bad) {
  PathMatrix matrix(nodes, bad);
  std::vector<Blame> blamed;
  const auto take = [&](const Blame& one) {
    blamed.push_back(one);
    matrix.clear(one);
  };
  while (nodes > 2) {
    int worst = 0;
    for (int node = 1; node < nodes; ++node)
      if (matrix.most(node) > matrix.most(worst)) worst = node;
    if (matrix.most(worst) == 0) break;
    take({.node = worst});
  }
  for (int from = 0; from < nodes; ++from)
    for (int to = 0; to < nodes; ++to)
      if (matrix.at(from, to)) take({.node = from, .other = to, .both_ways = matrix.at(to, from)});
  return blamed;
}

std::string subject_of(const Blame& blame, const std::vector<std::string>& names) {
  const std::string& node = names[static_cast<std::size_t>(blame.node)];
  return blame.other < 0
             ? node
             : node + (blame.both_ways ? " <-> " : " -> ") + names[static_cast<std::size_t>(blame.other)];
}

}  // namespace dtrun::cmd
