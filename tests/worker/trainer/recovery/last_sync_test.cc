#include "worker/trainer/recovery/last_sync.h"

#include <doctest/doctest.h>

namespace dtrun::worker::last_sync_test {
namespace {

using Steps = std::vector<std::int64_t>;

TEST_CASE("the last whole sync is the newest of which somebody holds each replica") {
  // Two replicas: rank 0 has passed sync 8 and holds both there, rank 1 only its own at 4, rank 2 is new.
  const Steps steps{4, 4, 8, 8, -1, 4, -1, -1, -1, -1, -1, -1};
  const auto sync = last_whole_sync(steps, 2);
  REQUIRE(sync.has_value());
  CHECK((sync->step == 8 && sync->holders == std::vector<int>{0, 0}));
}

TEST_CASE(
    "a sync that lacks a replica is passed over for an older one, and the first of the ranks hands on") {
  const Steps steps{8,  -1, 4,  -1,   // rank 0 has replica 0
                    -1, 4,  -1, -1,   // rank 1 has replica 1, and had not passed sync 8
                    4,  -1, -1, -1};  // rank 2 has replica 0 too
  const auto sync = last_whole_sync(steps, 2);
  REQUIRE(sync.has_value());
  CHECK((sync->step == 4 && sync->holders == std::vector<int>{0, 1}));
}

TEST_CASE("the beginning is a sync too, and where nobody holds a replica there is none") {
  CHECK(last_whole_sync(Steps{0, -1, -1, 0}, 1).value().step == 0);
  CHECK_FALSE(last_whole_sync(Steps{8, -1, 4, -1}, 2));
  CHECK_FALSE(last_whole_sync(Steps{-1, -1, -1, -1}, 2));
}

}  // namespace
}  // namespace dtrun::worker::last_sync_test
