#include "cmd/check/core/blame.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::blame_test {
namespace {

using Blames = std::vector<Blame>;

TEST_CASE("a node most of whose paths are bad, from it or to it, is named alone") {
  CHECK(blame(4, [](int, int) { return false; }) == Blames{});
  CHECK(blame(4, [](int from, int to) { return from == 2 || to == 2; }) == Blames{{.node = 2}});
  CHECK(blame(4, [](int, int to) { return to == 3; }) == Blames{{.node = 3}});
  CHECK(blame(4, [](int from, int) { return from == 0; }) == Blames{{.node = 0}});
}

TEST_CASE("a single bad entry is a path, in one direction or both") {
  CHECK(blame(4, [](int from, int to) { return from == 0 && to == 3; }) == Blames{{.node = 0, .other = 3}});
  CHECK(blame(4, [](int from, int to) { return from + to == 5 && from != to; }) ==
        Blames{{.node = 2, .other = 3, .both_ways = true}});
}

TEST_CASE("two causes are both named, the larger first") {
  const Blames both =
      blame(8, [](int from, int to) { return from == 5 || to == 5 || (from == 0 && to == 1); });
  CHECK(both == Blames{{.node = 5}, {.node = 0, .other = 1}});
  CHECK(blame(8, [](int, int to) { return to == 2 || to == 6; }).size() == 2);
}

TEST_CASE("what is not known of a node speaks neither for it nor against it") {
  const auto slow = [](int from, int to) -> std::optional<bool> {
    if (from != 2) return false;
    return to < 4 ? std::optional(true) : std::nullopt;
  };
  CHECK(blame(8, slow) == Blames{{.node = 2}});
  const auto known = [](int from, int to) { return from == 2 && to < 4; };
  CHECK(blame(8, known).size() == 3);
  CHECK(blame(8, [](int, int) { return std::optional<bool>(); }).empty());
}

TEST_CASE("of two nodes none is blamed alone") {
  CHECK(blame(2, [](int from, int) { return from == 1; }) == Blames{{.node = 1, .other = 0}});
}

}  // namespace
}  // namespace dtrun::cmd::blame_test
