// The peers that the gate takes for one and the same, by the address of their connections.
#include "rendezvous/server/origin.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

namespace dtrun::rendezvous {
namespace {

Origin at(const char* address, int port = 5000) {
  sockaddr_storage from{};
  auto& four = reinterpret_cast<sockaddr_in&>(from);
  auto& six = reinterpret_cast<sockaddr_in6&>(from);
  if (inet_pton(AF_INET, address, &four.sin_addr) == 1) {
    from.ss_family = AF_INET;
    four.sin_port = htons(static_cast<in_port_t>(port));
  } else {
    REQUIRE(inet_pton(AF_INET6, address, &six.sin6_addr) == 1);
    from.ss_family = AF_INET6;
    six.sin6_port = htons(static_cast<in_port_t>(port));
  }
  return origin_of(from);
}

TEST_CASE("all addresses of an IPv6 network are one source, those of the next network another") {
  CHECK(at("2001:db8:1:2::1").source == at("2001:db8:1:2:ffff:ffff:ffff:ffff").source);
  CHECK(at("2001:db8:1:2::1").source != at("2001:db8:1:3::1").source);
}

TEST_CASE("each address of IPv4 is a source of its own, whatever its port, and within IPv6 too") {
  CHECK(at("10.0.0.1", 5000).source == at("10.0.0.1", 5001).source);
  CHECK(at("10.0.0.1").source != at("10.0.0.2").source);
  CHECK(at("::ffff:10.0.0.1").source == at("10.0.0.1").source);
  CHECK(at("::ffff:10.0.0.1").source != at("::ffff:10.0.0.2").source);
}

TEST_CASE("a peer is named as gRPC names it") {
  CHECK(at("10.0.0.1").name == "ipv4:10.0.0.1:5000");
  CHECK(at("::ffff:10.0.0.1").name == "ipv4:10.0.0.1:5000");
  CHECK(at("2001:db8::1").name == "ipv6:%5B2001:db8::1%5D:5000");
}

}  // namespace
}  // namespace dtrun::rendezvous
