#include "proto/base/ids.h"

#include <doctest/doctest.h>

#include <set>

namespace dtrun::ids_test {
namespace {

TEST_CASE("random ids are hex digits of the length asked for, and differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = random_id();
    CHECK(id.size() == 16);
    CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    seen.insert(id);
  }
  CHECK(seen.size() == 1000);
  CHECK(random_id(2).size() == 4);
}

TEST_CASE("a host always has a name") { CHECK_FALSE(host_name().empty()); }

}  // namespace
}  // namespace dtrun::ids_test
