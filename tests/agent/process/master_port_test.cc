// The port that is kept for rank 0's program: real sockets on this host.
#include "agent/process/master_port.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "tests/support/ports.h"

namespace dtrun::master_port_test {

using namespace dtrun::agent;

namespace {

enum class Reuse { kNo, kYes };

// A socket that listens on `port` of `address`, as PyTorch's TCPStore (with reuse) or anybody else would make
// it; not open if that fails.
Descriptor listener(const char* address, int port, Reuse reuse) {
  sockaddr_storage name{};
  socklen_t size = sizeof(sockaddr_in);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&name);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&name);
  if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
  } else {
    REQUIRE(inet_pton(AF_INET6, address, &v6->sin6_addr) == 1);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof(sockaddr_in6);
  }
  Descriptor made(socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  if (reuse == Reuse::kYes) setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (name.ss_family == AF_INET6) setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 || listen(made.get(), 8) != 0)
    return {};
  return made;
}

bool has_ipv6() { return Descriptor(listener("::", 0, Reuse::kNo)).open(); }

HeldPort held(int port) {
  auto result = hold_port(port);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return std::move(result).value();
}

}  // namespace

TEST_CASE("rank 0's program can listen on the held port, on any address and again and again") {
  const HeldPort port = held(0);
  CHECK(port.port > 0);
  for (const char* address : {"0.0.0.0", "127.0.0.1", "::", "::1", "0.0.0.0"}) {
    if (std::string(address).find(':') != std::string::npos && !has_ipv6()) continue;
    CAPTURE(address);
    const Descriptor server = listener(address, port.port, Reuse::kYes);
    CHECK(server.open());
  }
}

TEST_CASE("nobody gets the held port by accident") {
  const HeldPort port = held(0);
  CHECK_FALSE(listener("0.0.0.0", port.port, Reuse::kNo).open());
  CHECK_FALSE(listener("127.0.0.1", port.port, Reuse::kNo).open());
  if (has_ipv6()) CHECK_FALSE(listener("::", port.port, Reuse::kNo).open());
}

TEST_CASE("a connection that lingers after the program's end does not keep its successor from listening") {
  const HeldPort port = held(0);
  Descriptor server = listener("127.0.0.1", port.port, Reuse::kYes);
  Descriptor client(dtrun::test::connected_to(port.port));
  REQUIRE(client.get() >= 0);
  Descriptor accepted(accept(server.get(), nullptr, nullptr));
  accepted.reset();  // the server's side closes first: TIME_WAIT is here
  client.reset();
  server.reset();
  CHECK(listener("0.0.0.0", port.port, Reuse::kYes).open());
}

TEST_CASE("agents of one host may be given the same port, since only one of them has rank 0") {
  const HeldPort first = held(0), second = held(first.port);
  CHECK(second.port == first.port);
  CHECK(listener("0.0.0.0", first.port, Reuse::kYes).open());
}

TEST_CASE("a port that somebody listens on is refused with the way out") {
  HeldPort port = held(0);
  const Descriptor somebody = listener("0.0.0.0", port.port, Reuse::kYes);
  REQUIRE(somebody.open());
  port.socket.reset();
  const auto refused = hold_port(port.port);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().exit_code() == kExitUnavailable);
  CHECK(refused.status().message() ==
        "cannot hold MASTER_PORT " + std::to_string(port.port) +
            ": Address already in use (without --master_port a free one is taken)");
}

}  // namespace dtrun::master_port_test
