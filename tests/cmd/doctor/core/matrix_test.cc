#include "cmd/doctor/core/matrix.h"

#include <doctest/doctest.h>

#include <set>

namespace dtrun::doctor {
namespace {

using Kind = Blame::Kind;
using Blames = std::vector<Blame>;

TEST_CASE("a bad row and column is the node's own, a column or a row alone one direction of it") {
  CHECK(blame(4, [](int, int) { return false; }) == Blames{});
  CHECK(blame(4, [](int from, int to) { return from == 2 || to == 2; }) ==
        Blames{{.kind = Kind::kNode, .node = 2}});
  CHECK(blame(4, [](int, int to) { return to == 3; }) == Blames{{.kind = Kind::kTo, .node = 3}});
  CHECK(blame(4, [](int from, int) { return from == 1; }) == Blames{{.kind = Kind::kFrom, .node = 1}});
}

TEST_CASE("a single bad entry is a path, in one direction or both") {
  CHECK(blame(4, [](int from, int to) { return from == 0 && to == 3; }) ==
        Blames{{.kind = Kind::kPath, .node = 0, .other = 3}});
  CHECK(blame(4, [](int from, int to) { return from + to == 5 && from != to; }) ==
        Blames{{.kind = Kind::kBothWays, .node = 2, .other = 3}});
}

TEST_CASE("two causes are both named, the larger first") {
  const Blames both =
      blame(8, [](int from, int to) { return from == 5 || to == 5 || (from == 0 && to == 1); });
  CHECK(both == Blames{{.kind = Kind::kNode, .node = 5}, {.kind = Kind::kPath, .node = 0, .other = 1}});
  CHECK(blame(8, [](int, int to) { return to == 2 || to == 6; }).size() == 2);
}

TEST_CASE("what is not known of a node speaks neither for it nor against it") {
  const auto slow = [](int from, int to) -> std::optional<bool> {
    if (from != 2) return false;
    return to < 4 ? std::optional(true) : std::nullopt;
  };
  CHECK(blame(8, slow) == Blames{{.kind = Kind::kFrom, .node = 2}});
  const auto known = [](int from, int to) { return from == 2 && to < 4; };
  CHECK(blame(8, known).size() == 3);
  CHECK(blame(8, [](int, int) { return std::optional<bool>(); }).empty());
}

TEST_CASE("of two nodes none is blamed alone") {
  CHECK(blame(2, [](int from, int) { return from == 1; }) ==
        Blames{{.kind = Kind::kPath, .node = 1, .other = 0}});
}

TEST_CASE("the pairs of a round are disjoint, and all rounds are every pair once") {
  for (const int nodes : {2, 3, 7, 8}) {
    CAPTURE(nodes);
    std::set<Pair> all;
    std::size_t count = 0;
    for (const auto& round : rounds_of(nodes, 1000)) {
      std::set<int> taken;
      for (const auto& [low, high] : round) {
        CHECK(low < high);
        CHECK(taken.insert(low).second);
        CHECK(taken.insert(high).second);
        all.insert({low, high});
        ++count;
      }
    }
    CHECK(count == static_cast<std::size_t>(nodes * (nodes - 1) / 2));
    CHECK(all.size() == count);
  }
  CHECK(rounds_of(1, 5).empty());
  CHECK(rounds_of(100, 5).size() == 5);
}

}  // namespace
}  // namespace dtrun::doctor
