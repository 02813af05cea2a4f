// The limits of guests, on either side of each, and that others are not affected.
#include "rendezvous/core/admission/guests.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous {
namespace {

TEST_CASE("a guest has its share of places and of waits, and what it gives back it may take again") {
  for (const auto kind : {GuestCalls::kMember, GuestCalls::kWaiter}) {
    GuestCalls calls;
    const std::size_t most = kind == GuestCalls::kMember ? GuestLimits::kMembers : GuestLimits::kWaiters;
    for (std::size_t i = 0; i < most; ++i) REQUIRE(calls.take("job7", kind));
    CHECK(!calls.take("job7", kind));
    CHECK(calls.take("job8", kind));
    CHECK(calls.take("job7", kind == GuestCalls::kMember ? GuestCalls::kWaiter : GuestCalls::kMember));
    calls.give_back("job7", kind);
    CHECK(calls.take("job7", kind));
    CHECK(!calls.take("job7", kind));
  }
}

TEST_CASE("a guest calls as often as it may a second, after what is free") {
  GuestCalls calls;
  for (int i = 0; i < static_cast<int>(GuestLimits::kCalls); ++i) {
    REQUIRE(calls.begins("job7", 5000));
    calls.arrived("job7");
  }
  CHECK(!calls.begins("job7", 5000));
  CHECK(calls.begins("job8", 5000));
  CHECK(calls.begins("job7", 5001));
  CHECK(!calls.begins("job7", 5001));
  int allowed = 0;
  for (int now = 5002; now < 7002; ++now)
    for (int i = 0; i < 10; ++i) allowed += calls.begins("job7", now);
  CHECK(allowed == 2 * static_cast<int>(GuestLimits::kCallsPerSecond));
}

TEST_CASE("calls whose messages do not arrive are so many, and then all that the guest has is ended") {
  GuestCalls calls;
  Millis now = 1000;
  const auto begins = [&](const std::string& guest) { return calls.begins(guest, now += 10); };
  for (std::size_t i = 0; i < 3 * GuestLimits::kUnarrived; ++i) {
    REQUIRE(begins("arrives"));
    calls.arrived("arrives");
  }
  for (std::size_t i = 0; i < GuestLimits::kUnarrived; ++i) REQUIRE(begins("job7"));
  calls.arrived("job7");
  CHECK(begins("job7"));
  CHECK(!begins("job7"));
  CHECK(begins("job7"));  // on a new connection
  CHECK(begins("arrives"));
  calls.arrived("nobody");
}

TEST_CASE("guests that have gone are forgotten, and those that hold something are not") {
  GuestCalls calls;
  for (int i = 0; i < 1000; ++i) {
    calls.begins("job" + std::to_string(i), 1000);
    calls.arrived("job" + std::to_string(i));
  }
  calls.begins("holds a call", 1000);
  REQUIRE(calls.take("job5", GuestCalls::kMember));
  calls.begins("new", 200'000);
  CHECK(calls.size() == 3);
  for (std::size_t i = 1; i < GuestLimits::kMembers; ++i) REQUIRE(calls.take("job5", GuestCalls::kMember));
  CHECK(!calls.take("job5", GuestCalls::kMember));
}

TEST_CASE("a guest's connection beyond its share goes at once") {
  GuestConnections connections(100'000);
  GuestConnections::Id id = 0;
  for (std::size_t i = 0; i < GuestLimits::kConnections; ++i) REQUIRE(!connections.came(++id, "job7"));
  CHECK(connections.came(++id, "job7") == id);
  connections.went(id);
  CHECK(!connections.came(++id, "job8"));
  connections.went(3);
  connections.went(3);
  CHECK(!connections.contains(3));
  CHECK(connections.of("job7").size() == GuestLimits::kConnections - 1);
  CHECK(connections.of("job8").size() == 1);
  CHECK(connections.of("job9").empty());
  CHECK(!connections.came(++id, "job7"));
  CHECK(connections.came(++id, "job7") == id);
}

TEST_CASE("where all guests together have too many, the newest goes of the one that has most") {
  GuestConnections connections(10);
  for (GuestConnections::Id id = 1; id <= 8; ++id) CHECK(!connections.came(id, "many"));
  CHECK(!connections.came(9, "few"));
  CHECK(!connections.came(10, "few"));
  CHECK(connections.came(11, "few") == 8);
  connections.went(8);
  CHECK(connections.size() == 10);
  CHECK(connections.came(12, "many") == 12);
  connections.went(12);
  CHECK(connections.came(13, "third") == 7);
}

}  // namespace
}  // namespace dtrun::rendezvous
