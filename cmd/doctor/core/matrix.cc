#include "cmd/doctor/core/matrix.h"

#include <algorithm>

namespace dtrun::doctor {
namespace {

using Kind = Blame::Kind;

class Matrix {
 public:
  Matrix(int nodes, const IsBad& bad) : nodes_(nodes), bad_(nodes * nodes), known_(nodes * nodes) {
    for (int from = 0; from < nodes; ++from)
      for (int to = 0; to < nodes; ++to) {
        const std::optional<bool> one = from == to ? std::nullopt : bad(from, to);
        bad_[index(from, to)] = one.value_or(false);
        known_[index(from, to)] = one.has_value();
      }
  }

  bool at(int from, int to) const { return bad_[index(from, to)]; }
  void clear(int from, int to) { bad_[index(from, to)] = false; }

  struct Line {
    int bad = 0, known = 0;
  };
  Line row(int node) const {
    Line line;
    for (int to = 0; to < nodes_; ++to) count(node, to, &line);
    return line;
  }
  Line column(int node) const {
    Line line;
    for (int from = 0; from < nodes_; ++from) count(from, node, &line);
    return line;
  }
  bool is_whole(const Line& line) const {
    return 3 * line.bad >= 2 * line.known && line.bad >= std::min(2, nodes_ - 2);
  }
  void clear_all_of(int node, Kind kind) {
    for (int other = 0; other < nodes_; ++other) {
      if (kind != Kind::kTo) clear(node, other);
      if (kind != Kind::kFrom) clear(other, node);
    }
  }

 private:
  std::size_t index(int from, int to) const { return static_cast<std::size_t>(from * nodes_ + to); }
  void count(int from, int to, Line* line) const {
    line->bad += bad_[index(from, to)] ? 1 : 0;
    line->known += known_[index(from, to)] ? 1 : 0;
  }

  int nodes_;
  std::vector<bool> bad_, known_;
};

// The node whose row, column or both are bad, with the most entries; kPath: there is none.
Blame worst_node(const Matrix& matrix, int nodes) {
  Blame worst;
  int most = 0;
  for (int node = 0; node < nodes; ++node) {
    const Matrix::Line row = matrix.row(node), column = matrix.column(node);
    const bool from = matrix.is_whole(row), to = matrix.is_whole(column);
    const int entries = (from ? row.bad : 0) + (to ? column.bad : 0);
    if (entries <= most) continue;
    most = entries;
    worst = {.kind = from && to ? Kind::kNode : from ? Kind::kFrom : Kind::kTo, .node = node};
  }
  return worst;
}

}  // namespace

std::vector<Blame> blame(int nodes, const IsBad& bad) {
  Matrix matrix(nodes, bad);
  std::vector<Blame> blamed;
  while (nodes > 2) {
    const Blame worst = worst_node(matrix, nodes);
    if (worst.kind == Kind::kPath) break;
    blamed.push_back(worst);
    matrix.clear_all_of(worst.node, worst.kind);
  }
  for (int from = 0; from < nodes; ++from)
    for (int to = 0; to < nodes; ++to) {
      if (!matrix.at(from, to)) continue;
      const bool both = matrix.at(to, from);
      blamed.push_back({.kind = both ? Kind::kBothWays : Kind::kPath, .node = from, .other = to});
      matrix.clear(to, from);
    }
  return blamed;
}

std::string subject_of(const Blame& blame, const std::vector<std::string>& names) {
  const std::string& node = names[static_cast<std::size_t>(blame.node)];
  if (blame.kind == Kind::kNode) return node;
  if (blame.kind == Kind::kTo) return "to " + node;
  if (blame.kind == Kind::kFrom) return "from " + node;
  return node + (blame.kind == Kind::kPath ? " -> " : " <-> ") + names[static_cast<std::size_t>(blame.other)];
}

std::vector<std::vector<Pair>> rounds_of(int nodes, int most) {
  if (nodes < 2) return {};
  const int seats = nodes + nodes % 2;  // with an odd number one sits out
  const int rounds = seats - 1, taken = std::min(rounds, most);
  std::vector<std::vector<Pair>> all;
  for (int i = 0; i < taken; ++i) {
    const int round = i * rounds / taken;
    // Seat 0 stays, the others go round.
    const auto at = [&](int seat) { return seat == 0 ? 0 : (seat - 1 + round) % (seats - 1) + 1; };
    std::vector<Pair> pairs;
    for (int seat = 0; seat < seats / 2; ++seat) {
      const int one = at(seat), other = at(seats - 1 - seat);
      if (std::max(one, other) < nodes) pairs.emplace_back(std::min(one, other), std::max(one, other));
    }
    all.push_back(std::move(pairs));
  }
  return all;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace dtrun::doctor
