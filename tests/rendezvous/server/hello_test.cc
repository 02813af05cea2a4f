// The kind of a connection, by its first bytes, and the host name in OpenSSL's own hello.
#include "rendezvous/server/hello.h"

#include <doctest/doctest.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <vector>

namespace dtrun::rendezvous {
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

TEST_CASE("anything else is none, as soon as that shows") {
  CHECK(greeting_of(Bytes{'P', 'R', 'I'}.data(), 1) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 2}.data(), 2) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0xff, 0xff, 1}.data(), 6) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0, 3, 1}.data(), 8) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 1, 0, 2}.data(), 300) == Greeting::kOther);
  CHECK(greeting_of(Bytes{23, 3, 3, 1, 0, 1}.data(), 300) == Greeting::kOther);
}

// As a client with this name, or with none, says it.
std::vector<unsigned char> hello_for(const char* name) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  if (name != nullptr) SSL_set_tlsext_host_name(session.get(), name);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(session.get(), BIO_new(BIO_s_mem()), out);
  SSL_set_connect_state(session.get());
  SSL_do_handshake(session.get());
  std::vector<unsigned char> hello(static_cast<std::size_t>(BIO_pending(out)));
  REQUIRE(BIO_read(out, hello.data(), static_cast<int>(hello.size())) == static_cast<int>(hello.size()));
  return hello;
}

TEST_CASE("the host that a hello asks for is the one that the client was told") {
  const auto hello = hello_for("0123.member.dtrun");
  CHECK(greeting_of(hello.data(), static_cast<int>(hello.size())) == Greeting::kHello);
  CHECK(server_name_in(hello) == "0123.member.dtrun");
  CHECK(!server_name_in(hello_for(nullptr)));
}

TEST_CASE("of a hello that is cut off no other name is read than a part of its own") {
  const auto hello = hello_for("0123.member.dtrun");
  for (std::size_t size = 0; size < hello.size(); ++size) {
    const auto name = server_name_in(std::span(hello).first(size));
    CHECK_MESSAGE((!name || std::string("0123.member.dtrun").starts_with(*name)), size);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
