#include "rendezvous/core/store.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::store_test {

using Store = KeyValueStore;
using Outcome = KeyValueStore::Outcome;

TEST_CASE("what was set is read, until it is deleted") {
  Store store;
  CHECK_FALSE(store.get("k"));
  store.set("k", "v");
  CHECK(store.get("k") == "v");
  store.set("k", "");
  CHECK(store.get("k") == "");
  CHECK(store.erase_all("k") == 1);
  CHECK(store.erase_all("k") == 0);
  CHECK_FALSE(store.get("k"));
}

TEST_CASE("everyone who waits for a key gets its value, once") {
  Store store;
  store.wait(1, "k", 100);
  store.wait(2, "k", 200);
  store.wait(3, "other", 300);
  CHECK(store.take_answers(0).empty());
  store.set("k", "v");
  const auto answers = store.take_answers(0);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].value == "v");
  CHECK(answers[1].waiter == 2);
  CHECK(store.take_answers(250).empty());
  CHECK(store.next_deadline() == 300);
}

TEST_CASE("a waiter gets the value that was set, even if it is deleted before it is told") {
  Store store;
  store.wait(1, "k", 100);
  store.set("k", "v");
  store.erase_all("k");
  const auto answers = store.take_answers(0);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].value == "v");
}

TEST_CASE("a waiter is told when its time is up") {
  Store store;
  store.wait(1, "k", 100);
  CHECK(store.next_deadline() == 100);
  CHECK(store.take_answers(99).empty());
  const auto answers = store.take_answers(100);
  REQUIRE(answers.size() == 1);
  CHECK_FALSE(answers[0].value);
  CHECK(store.next_deadline() == Store::kNever);
  store.set("k", "v");
  CHECK(store.take_answers(200).empty());
}

TEST_CASE("waiting for a key that is there is answered at once") {
  Store store;
  store.set("k", "v");
  store.wait(1, "k", 100);
  CHECK(store.take_answers(0).size() == 1);
}

TEST_CASE("a cancelled waiter hears nothing") {
  Store store;
  store.wait(1, "k", 100);
  store.wait(2, "k", 100);
  store.cancel(1);
  store.set("k", "v");
  store.cancel(2);
  CHECK(store.take_answers(1000).empty());
  store.cancel(3);
}

TEST_CASE("deleting a prefix takes every key under it and no other") {
  Store store;
  for (const char* key : {"g1/a", "g1/b", "g10/a", "g1", "g2/a"}) store.set(key, "v");
  CHECK(store.erase_all("g1/") == 2);
  CHECK(store.get("g10/a"));
  CHECK(store.get("g1"));
  CHECK(store.erase_all("g") == 3);
}

TEST_CASE("what is too large for an item or the store is refused and changes nothing") {
  constexpr std::size_t kOverhead = Store::kItemOverhead;
  Store store({.item = 1000 + kOverhead, .total = 2000 + 2 * kOverhead});
  const auto of = [](std::size_t size, char letter = 'v') { return std::string(size, letter); };
  CHECK(store.set("a/1", of(997)) == Outcome::kDone);
  CHECK(store.set("a/1", of(998)) == Outcome::kItemTooLarge);
  CHECK(store.get("a/1") == of(997));
  CHECK(store.set("a/2", of(997)) == Outcome::kDone);
  CHECK(store.size() == store.limits().total);
  CHECK(store.set("a/2", of(997, 'w')) == Outcome::kDone);  // in the other's place
  CHECK(store.set("c/1", "") == Outcome::kStoreFull);
  CHECK_FALSE(store.get("c/1"));
  CHECK(store.erase_all("a/1") == 1);
  CHECK(store.set("c/1", of(997)) == Outcome::kDone);
  CHECK(store.erase_all("c/") + store.erase_all("a") == 2);
  CHECK(store.size() == 0);
  CHECK(store.set("a/1", of(997)) == Outcome::kDone);
  CHECK(store.set("a/2", of(997)) == Outcome::kDone);
}

TEST_CASE("who waits for a key that does not fit goes on waiting") {
  Store store({.item = 200});
  store.wait(1, "k", 100);
  CHECK(store.set("k", std::string(200, 'v')) == Outcome::kItemTooLarge);
  CHECK(store.take_answers(0).empty());
  CHECK(store.set("k", "v") == Outcome::kDone);
  CHECK(store.take_answers(0).size() == 1);
}

TEST_CASE("a key that could not be set is not waited for") {
  const KeyValueStore store({.item = 1000, .total = 10000});
  CHECK(store.fits(std::string(1000 - KeyValueStore::kItemOverhead, 'x')));
  CHECK(!store.fits(std::string(1001 - KeyValueStore::kItemOverhead, 'x')));
}

}  // namespace dtrun::rendezvous::store_test
