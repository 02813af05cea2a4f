// The permissions of a peer, by the name in its certificate.
#include "rendezvous/identity/authorization.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous {
namespace {

TEST_CASE("who has the key may do everything, and where there is none anybody") {
  for (const PeerName& peer : {PeerName("dtrun"), PeerName()}) {
    CHECK(!refusal_of(peer, ""));
    CHECK(!refusal_of(peer, "job7"));
    CHECK(!refusal_of_key(peer, "job7/1/a"));
    CHECK(!refusal_of_key(peer, "a"));
  }
}

TEST_CASE("a scoped token opens its run and no other, also one with a name like it") {
  const std::string peer = token_name("job7");
  CHECK(run_of(peer) == "job7");
  CHECK(!refusal_of(peer, "job7"));
  for (const char* const other : {"job8", "job77", "job", "JOB7", "", "job7/", "dtrun"}) {
    CAPTURE(other);
    REQUIRE(refusal_of(peer, other));
    CHECK(refusal_of(peer, other)->find("a scoped token for run job7") != std::string::npos);
  }
}

TEST_CASE("a scoped token opens the keys of its run") {
  const std::string peer = token_name("job7");
  CHECK(!refusal_of_key(peer, "job7/"));
  CHECK(!refusal_of_key(peer, "job7/3/a/b"));
  for (const char* const key : {"", "/", "job7", "job", "job77/3/a", "job8/3/a", "/job7/3"}) {
    CAPTURE(key);
    CHECK(refusal_of_key(peer, key));
  }
}

TEST_CASE("a run may be called as a key's holder is, and no other certificate opens anything") {
  CHECK(refusal_of(token_name("dtrun"), "job7"));
  CHECK(!refusal_of(token_name("dtrun"), "dtrun"));
  for (const char* const peer : {"run ", "run", "job7", "Dtrun", ""}) {
    CHECK(!run_of(peer));
    CHECK(refusal_of(peer, "job7"));
    CHECK(refusal_of(peer, ""));
  }
}

TEST_CASE("guests are who shows a scoped token") {
  CHECK(guest_of(token_name("job7")) == "job7");
  CHECK(guest_of(token_name("dtrun")) == "dtrun");
  for (const PeerName& peer : {PeerName("dtrun"), PeerName(""), PeerName()}) CHECK(!guest_of(peer));
}

}  // namespace
}  // namespace dtrun::rendezvous
