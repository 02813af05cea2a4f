#include "rendezvous/server/peer_name.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

namespace dtrun::rendezvous::peer_name_test {
namespace {

std::string name_at(const char* address) {
  sockaddr_storage from{};
  auto& four = reinterpret_cast<sockaddr_in&>(from);
  auto& six = reinterpret_cast<sockaddr_in6&>(from);
  if (inet_pton(AF_INET, address, &four.sin_addr) == 1) {
    from.ss_family = AF_INET;
    four.sin_port = htons(5000);
  } else {
    REQUIRE(inet_pton(AF_INET6, address, &six.sin6_addr) == 1);
    from.ss_family = AF_INET6;
    six.sin6_port = htons(5000);
  }
  return peer_name(from);
}

TEST_CASE("a peer is named as gRPC names it") {
  CHECK(name_at("10.0.0.1") == "ipv4:10.0.0.1:5000");
  CHECK(name_at("::ffff:10.0.0.1") == "ipv4:10.0.0.1:5000");
  CHECK(name_at("2001:db8::1") == "ipv6:%5B2001:db8::1%5D:5000");
}

}  // namespace
}  // namespace dtrun::rendezvous::peer_name_test
