// The kind of a connection, by its first bytes.
#include "rendezvous/server/hello.h"

#include <doctest/doctest.h>

#include <array>

namespace dtrun::rendezvous::hello_test {
namespace {

using Bytes = std::array<unsigned char, kGreetingBytes>;

TEST_CASE("a whole record with a ClientHello is a greeting, also in TLS 1.0's clothes") {
  for (const unsigned char minor : {1, 3, 4}) {
    const Bytes hello{22, 3, minor, 1, 0, 1};
    CHECK(greeting_of(hello.data(), 5 + 256) == Greeting::kHello);
    CHECK(greeting_of(hello.data(), 5 + 256 + 100) == Greeting::kHello);
    for (const int part : {0, 1, 5, 6, 260}) CHECK(greeting_of(hello.data(), part) == Greeting::kMore);
  }
}

TEST_CASE("a node without a key is told from other programs") {
  const Bytes preface{'P', 'R', 'I', ' ', '*', ' '};
  CHECK(greeting_of(preface.data(), 6) == Greeting::kPlain);
  CHECK(greeting_of(preface.data(), 300) == Greeting::kPlain);
  CHECK(greeting_of(Bytes{'P', 'R', 'I', ' ', '/', ' '}.data(), 6) == Greeting::kOther);
}

TEST_CASE("anything else is none, as soon as that shows") {
  CHECK(greeting_of(Bytes{'P', 'R', 'I'}.data(), 1) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 2}.data(), 2) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0xff, 0xff, 1}.data(), 6) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0, 3, 1}.data(), 8) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 1, 0, 2}.data(), 300) == Greeting::kOther);
  CHECK(greeting_of(Bytes{23, 3, 3, 1, 0, 1}.data(), 300) == Greeting::kOther);
}

}  // namespace
}  // namespace dtrun::rendezvous::hello_test
