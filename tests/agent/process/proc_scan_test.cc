// When a search for a job's processes ends. That it finds them is stop_test.cc's.
#include "agent/process/proc_scan.h"

#include <doctest/doctest.h>

#include <vector>

namespace dtrun::proc_scan_test {

using namespace dtrun::agent;

namespace {

// How often it looks if the looks find so many, and none after them.
int looks(const std::vector<int>& found, int most = 100) {
  std::size_t at = 0;
  return look_until_none([&] { return at < found.size() ? found[at++] : 0; }, most);
}

}  // namespace

TEST_CASE("a search ends with two empty looks in a row, not with one") {
  CHECK(looks({}) == 2);
  CHECK(looks({3}) == 3);
  CHECK(looks({3, 0, 1}) == 5);
  CHECK(looks({0, 1, 0, 2, 0}) == 6);
}

TEST_CASE("a search that never comes to an end is given up") {
  const auto never = [] { return 1; };
  CHECK(look_until_none(never, 7) == 7);
  CHECK(looks({1, 1}, 4) == 4);
  CHECK(looks({1, 1}, 3) == 3);
}

}  // namespace dtrun::proc_scan_test
