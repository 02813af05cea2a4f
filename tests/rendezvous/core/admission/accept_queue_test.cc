// The admission of handshakes, at a virtual time.
#include "rendezvous/core/admission/accept_queue.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {
namespace {

using Ids = std::vector<AcceptQueue::Id>;

void arrive(AcceptQueue& queue, AcceptQueue::Id id, const std::string& source, Millis now = 0,
            bool member = false) {
  CHECK(!queue.arrived(id, source, now));
  queue.greeted(id, member, now);
}

TEST_CASE("who says hello begins at once, who says nothing never does and goes after his time") {
  AcceptQueue queue({});
  CHECK(!queue.arrived(1, "a", 0));
  CHECK(!queue.arrived(2, "a", 0));
  queue.greeted(2, false, 0);
  CHECK(queue.take_next(10) == Ids{2});
  queue.proven(2);
  CHECK(queue.take_expired(4999).empty());
  CHECK(queue.take_expired(5000) == Ids{1});
  CHECK(queue.waiting() + queue.handshaking() + queue.sources() == 0);
  CHECK(queue.next_deadline(5000) == kNever);
}

TEST_CASE(
    "who says that it is a member does not wait behind unauthenticated peers, nor behind others of its "
    "address") {
  AcceptQueue queue({.handshaking = 4, .failures = 2, .strange_failures = 2});
  for (AcceptQueue::Id id = 1; id <= 20; ++id) arrive(queue, id, id % 2 == 0 ? "shared" : "flood");
  for (const auto id : queue.take_next(0)) queue.failed(id, 0);
  CHECK(queue.take_next(0).empty());
  arrive(queue, 30, "shared", 0, true);
  arrive(queue, 31, "new", 0, true);
  CHECK(queue.take_next(0) == Ids{30, 31});
  queue.proven(31);
  arrive(queue, 32, "another", 0);
  CHECK(queue.take_next(0) == Ids{});  // that nobody of "another" came in is still so
}

TEST_CASE("unauthenticated peers that stay in their handshakes leave some for those that are known") {
  AcceptQueue queue({.handshaking = 8});
  for (AcceptQueue::Id id = 1; id <= 20; ++id) arrive(queue, id, "flood" + std::to_string(id));
  CHECK(queue.take_next(0).size() == 6);
  arrive(queue, 30, "new", 0, true);
  CHECK(queue.take_next(0) == Ids{30});
}

TEST_CASE("the word of members is worth nothing while too many that give it fail, and then it is again") {
  AcceptQueue queue({.failures = 3, .failures_per_second = 1});
  for (AcceptQueue::Id id = 1; id <= 5; ++id) arrive(queue, id, "liar", 0, true);
  for (const auto id : queue.take_next(0)) queue.failed(id, 0);
  arrive(queue, 10, "liar", 0, true);
  CHECK(queue.take_next(0) == Ids{10});  // as anybody of an address without failures of its own
  queue.failed(10, 0);
  for (AcceptQueue::Id id = 11; id <= 20; ++id) arrive(queue, id, "liar", 0, true);
  for (const auto id : queue.take_next(0)) queue.failed(id, 0);
  arrive(queue, 21, "liar", 0, true);
  CHECK(queue.take_next(0).empty());
  arrive(queue, 22, "liar", 5000, true);
  CHECK(queue.take_next(5000).front() == 22);
}

TEST_CASE("members that all wait at once push nobody out, and are pushed out by nobody") {
  AcceptQueue queue({.waiting = 8, .handshaking = 0});
  arrive(queue, 1, "other");
  for (AcceptQueue::Id id = 2; id <= 8; ++id) arrive(queue, id, "nat", 0, true);
  CHECK(queue.is_full(0));
}

TEST_CASE("few handshakes go on at once, and the next begins when one has ended") {
  AcceptQueue queue({.handshaking = 2});
  for (AcceptQueue::Id id = 1; id <= 4; ++id) arrive(queue, id, "a");
  CHECK(queue.take_next(0) == Ids{1, 2});
  CHECK(queue.take_next(0).empty());
  queue.proven(1);
  CHECK(queue.take_next(0) == Ids{3});
  queue.failed(2, 0);
  CHECK(queue.take_next(0) == Ids{4});
}

TEST_CASE("a handshake that does not end gives its place up, and who waits longer than an agent would goes") {
  AcceptQueue queue({.handshaking = 1});
  arrive(queue, 1, "a");
  arrive(queue, 2, "b");
  arrive(queue, 3, "c");
  CHECK(queue.take_next(0) == Ids{1});
  CHECK(queue.take_expired(5499).empty());
  CHECK(queue.take_expired(5500).empty());  // the caller ends the connection
  CHECK(queue.take_next(5500) == Ids{2});
  CHECK(queue.take_expired(10000) == Ids{3});
}

TEST_CASE("sources take turns: one that floods does not keep another waiting") {
  AcceptQueue queue({.handshaking = 1});
  for (AcceptQueue::Id id = 1; id <= 100; ++id) arrive(queue, id, "flood");
  CHECK(queue.take_next(0) == Ids{1});
  arrive(queue, 200, "member");
  queue.failed(1, 0);
  CHECK(queue.take_next(0) == Ids{200});
}

TEST_CASE("where too many wait, one of the source that has most goes") {
  AcceptQueue queue({.waiting = 3});
  CHECK(!queue.arrived(1, "member", 0));
  CHECK(!queue.arrived(2, "flood", 0));
  CHECK(!queue.arrived(3, "flood", 0));
  CHECK(queue.arrived(4, "flood", 0) == 2);
  CHECK(queue.arrived(5, "other", 0) == 3);
  CHECK(queue.waiting() == 3);
}

TEST_CASE("who has said hello stays before one who has not, whatever the others of its source do") {
  AcceptQueue queue({.waiting = 4, .handshaking = 0});
  for (AcceptQueue::Id id = 1; id <= 3; ++id) arrive(queue, id, "nat");
  CHECK(!queue.arrived(4, "quiet", 0));
  CHECK(!queue.is_full(0));
  CHECK(queue.arrived(5, "nat", 0) == 4);
}

TEST_CASE("of sources that all say hello the greedy one's go, and those whose handshakes fail before them") {
  AcceptQueue queue({.waiting = 6, .handshaking = 1});
  arrive(queue, 1, "wrong");
  arrive(queue, 2, "wrong");
  CHECK(queue.take_next(0) == Ids{1});
  for (AcceptQueue::Id id = 3; id <= 7; ++id) arrive(queue, id, "greedy");
  CHECK(queue.arrived(8, "member", 0) == 3);
  queue.greeted(8, false, 0);
  queue.failed(1, 0);
  CHECK(queue.arrived(9, "member", 0) == 2);
}

TEST_CASE(
    "where all have said hello and none is greedy, the next is left to the kernel until there is room") {
  AcceptQueue queue({.waiting = 4, .handshaking = 1});
  for (AcceptQueue::Id id = 1; id <= 4; ++id) arrive(queue, id, id % 2 == 0 ? "a" : "b");
  CHECK(queue.is_full(0));
  CHECK(queue.take_next(0).size() == 1);
  CHECK(!queue.is_full(0));
  AcceptQueue one_address({.waiting = 4, .handshaking = 1});
  for (AcceptQueue::Id id = 1; id <= 4; ++id) arrive(one_address, id, "nat");
  CHECK(one_address.is_full(0));
}

TEST_CASE("one more than an equal share is not greedy, two more are") {
  AcceptQueue queue({.waiting = 5, .handshaking = 0});
  for (AcceptQueue::Id id = 1; id <= 5; ++id) arrive(queue, id, id <= 3 ? "a" : "b");
  CHECK(queue.is_full(0));
  queue.left(5);
  arrive(queue, 6, "a");
  CHECK(queue.arrived(7, "b", 0) == 1);
}

TEST_CASE("where unauthenticated peers fail, they go before those of a known address, though it fails too") {
  AcceptQueue queue({.waiting = 2, .handshaking = 3});
  for (AcceptQueue::Id id = 1; id <= 2; ++id) arrive(queue, id, "member");
  CHECK(queue.take_next(0) == Ids{1, 2});
  arrive(queue, 3, "unknown");
  CHECK(queue.take_next(0) == Ids{3});
  queue.proven(1);
  queue.failed(2, 0);
  queue.failed(3, 0);
  arrive(queue, 4, "member");
  arrive(queue, 5, "unknown");
  CHECK(queue.arrived(6, "member", 0) == 5);
  queue.left(4);
  arrive(queue, 7, "zero failures of its own");
  CHECK(queue.arrived(8, "member", 0) == 7);  // 6 has not said hello yet
}

TEST_CASE(
    "the files that unauthenticated peers may take are never exceeded, and leave room for one member at "
    "least") {
  const AcceptQueue::Limits most;
  for (const std::size_t files : {0, 1, 4, 7, 12, 100, 512, 1000, 1536, 5000}) {
    const auto limits = AcceptQueue::Limits::within(files);
    CHECK(limits.waiting + 1 + 2 * limits.handshaking <= std::max<std::size_t>(files, 5));
    CHECK(limits.handshaking >= 1);
    CHECK(limits.waiting >= 2);
  }
  CHECK(AcceptQueue::Limits::within(1537).waiting == most.waiting);
  CHECK(AcceptQueue::Limits::within(1 << 20).handshaking == most.handshaking);
}

TEST_CASE("a source whose handshakes fail may begin only some a second; others do not notice") {
  AcceptQueue queue({.failures = 10, .failures_per_second = 2});
  AcceptQueue::Id id = 0;
  int begun = 0;
  for (int i = 0; i < 100; ++i) {
    arrive(queue, ++id, "wrong");
    for (const AcceptQueue::Id one : queue.take_next(0)) queue.failed(one, 0), ++begun;
  }
  CHECK(begun == 10);
  arrive(queue, ++id, "right");
  CHECK(queue.take_next(0) == Ids{id});
  // Two failures are forgiven after a second.
  CHECK(queue.take_next(1000).size() == 2);
}

TEST_CASE("a source that failed is not forgiven for another connection of it that leaves") {
  AcceptQueue queue({.failures = 1, .failures_per_second = 0});
  arrive(queue, 1, "wrong");
  CHECK(queue.take_next(0) == Ids{1});
  queue.failed(1, 0);
  arrive(queue, 2, "wrong");
  queue.left(2);
  arrive(queue, 3, "wrong");
  CHECK(queue.take_next(0).empty());
}

TEST_CASE("65,536 addresses are known, and no more") {
  AcceptQueue queue({.strange_failures = 1, .strange_failures_per_second = 0});
  AcceptQueue::Id id = 0;
  const auto may_begin = [&](const std::string& source) {
    arrive(queue, ++id, source);
    return queue.take_next(0) == Ids{id};
  };
  for (int address = 1; address <= 65537; ++address) {
    REQUIRE(may_begin(std::to_string(address)));
    queue.proven(id);
  }
  REQUIRE(may_begin("unknown"));
  queue.failed(id, 0);
  CHECK_FALSE(may_begin("65537"));
  CHECK(may_begin("65536"));
}

TEST_CASE("of all sources that nobody knows only some handshakes may fail; a known one does not notice") {
  AcceptQueue queue({.strange_failures = 10, .strange_failures_per_second = 2});
  AcceptQueue::Id id = 0;
  arrive(queue, ++id, "member");
  CHECK(queue.take_next(0) == Ids{id});
  queue.proven(id);
  CHECK(queue.sources() == 0);
  int begun = 0;
  for (int i = 0; i < 100; ++i) {
    arrive(queue, ++id, "unknown" + std::to_string(i));
    for (const AcceptQueue::Id one : queue.take_next(0)) queue.failed(one, 0), ++begun;
  }
  CHECK(begun == 10);
  arrive(queue, ++id, "member");
  CHECK(queue.take_next(0) == Ids{id});
  queue.failed(id, 0);  // a broken connection is none of the unauthenticated peers'
  CHECK(queue.take_next(1000).size() == 2);
}

TEST_CASE(
    "while handshakes of unknown addresses fail, sixteen of them go on at once; a known one does not "
    "notice") {
  AcceptQueue queue({});
  arrive(queue, 1000, "member");
  CHECK(queue.take_next(0) == Ids{1000});
  queue.proven(1000);
  for (AcceptQueue::Id id = 1; id <= 100; ++id) arrive(queue, id, std::to_string(id));
  CHECK(queue.take_next(0).size() == 100);  // nothing speaks against them yet
  for (AcceptQueue::Id id = 101; id <= 140; ++id) arrive(queue, id, std::to_string(id));
  for (AcceptQueue::Id id = 1; id <= 84; ++id) queue.failed(id, 0);
  CHECK(queue.take_next(0).empty());
  queue.proven(85);
  CHECK(queue.take_next(0).size() == 1);
  arrive(queue, 1001, "member");
  CHECK(queue.take_next(0) == Ids{1001});
  CHECK(queue.take_next(2000).size() == 39);  // all is forgiven
}

TEST_CASE("who comes in from a new address while others fail there is known from then on") {
  AcceptQueue queue({.strange_failures = 10, .strange_failures_per_second = 0});
  for (AcceptQueue::Id id = 1; id <= 100; ++id) arrive(queue, id, std::to_string(id));
  const Ids begun = queue.take_next(0);
  CHECK(begun.size() == 100);  // nothing speaks against them yet
  for (const AcceptQueue::Id id : begun) id % 2 == 0 ? queue.failed(id, 0) : queue.proven(id);
  arrive(queue, 200, "later");
  CHECK(queue.take_next(0).empty());
  arrive(queue, 201, "1");
  CHECK(queue.take_next(0) == Ids{201});
}

TEST_CASE(
    "who has come in counts no more: ten thousand agents of one address are let in as fast as they prove "
    "it") {
  AcceptQueue queue({});
  for (AcceptQueue::Id id = 1; id <= 10000; ++id) {
    arrive(queue, id, "nat");
    REQUIRE(queue.take_next(0) == Ids{id});
    queue.proven(id);
  }
  CHECK(queue.sources() == 0);
}

TEST_CASE("whatever happens, the limits hold, all that came are accounted for, and nothing is left") {
  std::mt19937 random(3);
  AcceptQueue queue({.waiting = 20, .handshaking = 5});
  std::set<AcceptQueue::Id> waiting, handshaking;
  AcceptQueue::Id last = 0;
  Millis now = 0;
  const auto any_of = [&](const std::set<AcceptQueue::Id>& ids) {
    return ids.empty() ? 0 : *std::next(ids.begin(), static_cast<long>(random() % ids.size()));
  };
  for (int step = 0; step < 20000; ++step) {
    now += static_cast<Millis>(random() % 20);
    const AcceptQueue::Id one = any_of(waiting), other = any_of(handshaking);
    switch (random() % 6) {
      case 0:
      case 1:
        if (queue.is_full(now)) break;
        if (const auto goes =
                queue.arrived(++last, std::string(1, static_cast<char>('a' + random() % 4)), now))
          CHECK(waiting.erase(*goes) == 1);
        waiting.insert(last);
        break;
      case 2:
        queue.greeted(one, random() % 2 == 0, now);
        break;
      case 3:
        queue.left(one);
        waiting.erase(one);
        break;
      case 4:
        for (const auto id : queue.take_next(now)) CHECK(waiting.erase(id) == 1), handshaking.insert(id);
        break;
      default:
        random() % 2 == 0 ? queue.proven(other) : queue.failed(other, now);
        handshaking.erase(other);
    }
    for (const auto id : queue.take_expired(now)) CHECK(waiting.erase(id) == 1);
    std::erase_if(handshaking, [&](AcceptQueue::Id id) { return !queue.is_handshaking(id); });
    REQUIRE(queue.waiting() == waiting.size());
    REQUIRE(queue.handshaking() == handshaking.size());
    REQUIRE(queue.waiting() <= 20);
    REQUIRE(queue.handshaking() <= 5);
  }
  queue.take_expired(now + 20000);
  queue.take_expired(now + 20000000);
  CHECK(queue.waiting() + queue.handshaking() + queue.sources() == 0);
}

}  // namespace
}  // namespace dtrun::rendezvous
