// Which connections may begin a handshake, and which ones are closed: the limits on either side of each.
#include "rendezvous/core/admission/accept_queue.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace dtrun::rendezvous::accept_queue_test {
namespace {

using Id = AcceptQueue::Id;
using Ids = std::vector<Id>;
constexpr Millis kPlaceTime = AcceptQueue::kPlaceTime;
constexpr Millis kToGreet = AcceptQueue::Limits().to_greet, kToProve = AcceptQueue::Limits().to_prove;

void greet(AcceptQueue& queue, Id first, Id last, Millis now = 0) {
  for (Id id = first; id <= last; ++id) {
    CHECK(!queue.arrived(id, now));
    queue.greeted(id);
  }
}

// As many handshakes fail, one after the other, that it takes a flood for.
void flood(AcceptQueue& queue, Id first, std::size_t number, Millis now) {
  greet(queue, first, first + number - 1, now);
  for (const Id id : queue.take_turn(now).begin) queue.failed(id);
}

TEST_CASE("who says hello begins at once, who says nothing never does and goes after his time") {
  AcceptQueue queue({.waiting = 8, .places = 4});
  CHECK(!queue.arrived(1, 100));
  CHECK(!queue.arrived(2, 100));
  queue.greeted(2);
  CHECK(queue.take_turn(100).begin == Ids{2});
  CHECK(queue.take_turn(99 + kToGreet).close.empty());
  queue.proven(2);
  CHECK(queue.take_turn(100 + kToGreet).close == Ids{1});
  CHECK(queue.waiting() == 0);
  CHECK(queue.next_deadline(0) == kNever);
}

TEST_CASE("few handshakes go on at once, and the next begins when one has succeeded, who came first first") {
  AcceptQueue queue({.waiting = 8, .places = 2});
  greet(queue, 1, 5);
  CHECK(queue.take_turn(0).begin == Ids{1, 2});
  queue.left(3);
  queue.proven(2);
  CHECK(queue.take_turn(0).begin == Ids{4});
  CHECK(queue.take_turn(kPlaceTime).begin.empty());
  CHECK(queue.is_handshaking(4));
  CHECK(!queue.is_handshaking(2));
}

TEST_CASE("a handshake that failed keeps its place for two seconds from its beginning") {
  AcceptQueue queue({.waiting = 8, .places = 1});
  greet(queue, 1, 2, 1000);
  CHECK(queue.take_turn(1000).begin == Ids{1});
  queue.failed(1);
  CHECK(!queue.is_handshaking(1));
  CHECK(queue.take_turn(1000 + kPlaceTime - 1).begin.empty());
  CHECK(queue.take_turn(1000 + kPlaceTime).begin == Ids{2});
}

TEST_CASE("a handshake that does not end is closed when its time is over") {
  AcceptQueue queue({.waiting = 8, .places = 2});
  greet(queue, 1, 1, 1000);
  REQUIRE(queue.take_turn(1000).begin == Ids{1});
  CHECK(queue.take_turn(1000 + kToProve - 1).close.empty());
  CHECK(queue.take_turn(1000 + kToProve).close == Ids{1});
  CHECK(queue.places_taken() == 0);
}

TEST_CASE("while handshakes fail the oldest gives way after two seconds, and without that it does not") {
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    AcceptQueue queue({.waiting = 8, .places = 4});
    if (fails) flood(queue, 1, 3, 0);
    greet(queue, 11, 14, 10'000);
    REQUIRE(queue.take_turn(10'000).begin == Ids{11, 12, 13, 14});
    greet(queue, 15, 15, 10'000);
    CHECK(queue.take_turn(10'000 + kPlaceTime - 1).begin.empty());
    const AcceptQueue::Turn turn = queue.take_turn(10'000 + kPlaceTime);
    CHECK(turn.close == (fails ? Ids{11} : Ids{}));
    CHECK(turn.begin == (fails ? Ids{15} : Ids{}));
  }
}

TEST_CASE("members that all come at once wait in the kernel, and none is closed") {
  AcceptQueue queue({.waiting = 4, .places = 2});
  greet(queue, 1, 2);
  REQUIRE(queue.take_turn(0).begin.size() == 2);
  greet(queue, 3, 5);
  CHECK(!queue.is_full());
  greet(queue, 6, 6);
  CHECK(queue.is_full());
  queue.proven(1);
  CHECK(queue.take_turn(1).begin == Ids{3});
  CHECK(!queue.is_full());
}

TEST_CASE("where handshakes fail and too many wait, the oldest silent one goes, and without any the oldest") {
  AcceptQueue queue({.waiting = 3, .places = 2});
  flood(queue, 1, 2, 0);
  greet(queue, 3, 3);
  CHECK(!queue.arrived(4, 0));
  CHECK(!queue.arrived(5, 0));
  CHECK(!queue.is_full());
  CHECK(queue.arrived(6, 0) == 4);
  queue.greeted(5);
  queue.greeted(6);
  CHECK(queue.arrived(7, 0) == 3);
  CHECK(queue.waiting() == 3);
}

TEST_CASE("more failures than half of the places are a flood, until about as many succeed") {
  AcceptQueue queue({.waiting = 8, .places = 8});
  flood(queue, 1, 4, 0);
  greet(queue, 11, 18);
  REQUIRE(queue.take_turn(0).begin == Ids{11, 12, 13, 14});
  greet(queue, 21, 24);
  CHECK(queue.is_full());
  queue.failed(11);
  CHECK(!queue.is_full());
  queue.failed(11);  // the same
  queue.proven(11);  // too late
  CHECK(!queue.is_full());
  queue.proven(12);
  CHECK(queue.is_full());
}

TEST_CASE("a long flood is over after no more successes than a short one") {
  AcceptQueue queue({.waiting = 8, .places = 8});
  Id id = 1;
  for (int round = 0; round < 100; ++round, id += 8) flood(queue, id, 8, round * kPlaceTime);
  greet(queue, id, id + 3, 100 * kPlaceTime);
  REQUIRE(queue.take_turn(100 * kPlaceTime).begin.size() == 4);
  greet(queue, id + 4, id + 11, 100 * kPlaceTime);
  for (Id member = id; member < id + 4; ++member) {
    CHECK(!queue.is_full());
    queue.proven(member);
  }
  CHECK(queue.is_full());
}

TEST_CASE("the silent whose time is over are failures, too") {
  AcceptQueue queue({.waiting = 2, .places = 2});
  for (const Id id : {1, 2}) REQUIRE(!queue.arrived(id, 0));
  CHECK(queue.is_full());
  CHECK(queue.take_turn(kToGreet).close == Ids{1, 2});
  for (const Id id : {3, 4}) REQUIRE(!queue.arrived(id, 6000));
  CHECK(!queue.is_full());
}

TEST_CASE("the limits fit into the files that there are") {
  for (const std::size_t files : {5u, 6u, 34u, 100u, 512u}) {
    const auto limits = AcceptQueue::Limits::within(files);
    CHECK(2 * limits.places + limits.waiting + 1 <= files);
    CHECK(limits.places == files / 4);
  }
  CHECK(AcceptQueue::Limits::within(512).waiting == AcceptQueue::Limits().waiting);
  CHECK(AcceptQueue::Limits::within(512).places == AcceptQueue::Limits().places);
  CHECK(AcceptQueue::Limits::within(0).places == 1);
  CHECK(AcceptQueue::Limits::within(0).waiting == 2);
}

TEST_CASE("whatever happens, the limits hold, and all that came are accounted for") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const AcceptQueue::Limits limits{.waiting = 2 + random() % 5, .places = 1 + random() % 4};
    AcceptQueue queue(limits);
    std::set<Id> waiting, handshaking;
    Id next = 1;
    Millis now = 0;
    const auto any = [&](const std::set<Id>& ids) { return *std::next(ids.begin(), random() % ids.size()); };
    for (int step = 0; step < 400; ++step) {
      now += random() % 300;
      switch (random() % 6) {
        case 0:
        case 1:
          if (queue.is_full()) break;
          if (const auto goes = queue.arrived(next, now)) CHECK(waiting.erase(*goes) == 1);
          waiting.insert(next++);
          break;
        case 2:
          if (!waiting.empty()) queue.greeted(any(waiting));
          break;
        case 3:
          if (waiting.empty()) break;
          queue.left(*waiting.begin());
          waiting.erase(waiting.begin());
          break;
        default:
          if (handshaking.empty()) break;
          const Id ends = any(handshaking);
          random() % 4 == 0 ? queue.proven(ends) : queue.failed(ends);
          handshaking.erase(ends);
      }
      const AcceptQueue::Turn turn = queue.take_turn(now);
      for (const Id id : turn.close) CHECK(waiting.erase(id) + handshaking.erase(id) == 1);
      for (const Id id : turn.begin) {
        CHECK(waiting.erase(id) == 1);
        handshaking.insert(id);
      }
      REQUIRE(queue.waiting() == waiting.size());
      REQUIRE(queue.waiting() <= limits.waiting);
      REQUIRE(handshaking.size() <= queue.places_taken());
      REQUIRE(queue.places_taken() <= limits.places);
      for (const Id id : handshaking) REQUIRE(queue.is_handshaking(id));
    }
    for (const Id id : waiting) queue.left(id);
    for (const Id id : handshaking) queue.failed(id);
    CHECK(queue.take_turn(now + kPlaceTime).begin.empty());
    CHECK(queue.next_deadline(now) == kNever);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::accept_queue_test
