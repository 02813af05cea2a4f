// Who may look at the page, by the kernel's table and by names.
#include "rendezvous/http/access.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::access_test {
namespace {

SocketAddress four(std::uint16_t port, unsigned char last = 1) {
  return {.bytes = {127, 0, 0, last}, .port = port};
}

// 127.0.0.1:45678 (user 1000) talks to 127.0.0.1:29401; our own end is in the table too.
constexpr const char* kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:72D9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n"
    "   1: 0100007F:72D9 0100007F:B26E 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0\n"
    "   2: 0100007F:B26E 0100007F:72D9 01 00000000:00000000 02:000009C4 00000000  1000        0 3 2 0\n";
constexpr const char* kTable6 =
    "   0: 0000000000000000FFFF00000100007F:B26E 0000000000000000FFFF00000100007F:72D9 01 "
    "00000000:00000000 00:00000000 00000000  1001        0 3 2 0\n"
    "   1: 00000000000000000000000001000000:B26E 00000000000000000000000001000000:72D9 01 "
    "00000000:00000000 00:00000000 00000000  1002        0 3 2 0\n";

}  // namespace

TEST_CASE("the kernel names the user at the other end of a connection") {
  CHECK(owner_of(kTable, four(45678), four(29401)) == 1000);
  CHECK(owner_of(kTable, four(29401), four(45678)) == 0);  // the way back is our own end
  CHECK(owner_of(kTable, four(45679), four(29401)) == std::nullopt);
  CHECK(owner_of(kTable, four(45678, 2), four(29401)) == std::nullopt);
  CHECK(owner_of("", four(45678), four(29401)) == std::nullopt);
}

TEST_CASE("also behind a socket of IPv6") {
  CHECK(owner_of(kTable6, four(45678), four(29401)) == 1001);
  SocketAddress six{.bytes = std::vector<unsigned char>(16), .port = 45678};
  six.bytes[15] = 1;
  SocketAddress own = six;
  own.port = 29401;
  CHECK(owner_of(kTable6, six, own) == 1002);
}

TEST_CASE("a table that is torn or strange names nobody") {
  const std::string line = std::string(kTable).substr(std::string(kTable).find("   2:"));
  for (std::size_t length = 0; length < line.find("1000"); ++length)
    CHECK(owner_of(line.substr(0, length), four(45678), four(29401)) == std::nullopt);
  CHECK(owner_of("1: 0100007F:B26E 0100007F:72D9 01 a b c d\n", four(45678), four(29401)) == std::nullopt);
  CHECK(owner_of("1: 0100007F:B26E 0100007F:72D9 01 a b c 99999999999\n", four(45678), four(29401)) ==
        std::nullopt);
}

TEST_CASE("loopback is 127.0.0.0/8 and ::1, whatever socket") {
  CHECK(is_loopback(four(1, 77)));
  CHECK_FALSE(is_loopback({.bytes = {10, 0, 0, 1}, .port = 1}));
  SocketAddress six{.bytes = std::vector<unsigned char>(16), .port = 1};
  CHECK_FALSE(is_loopback(six));
  six.bytes[15] = 1;
  CHECK(is_loopback(six));
  six.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1};
  CHECK(is_loopback(six));
  six.bytes[12] = 10;
  CHECK_FALSE(is_loopback(six));
  CHECK_FALSE(is_loopback({.bytes = {}, .port = 1}));
}

TEST_CASE("a page that a foreign site leads to under its own name is not shown") {
  for (const char* own : {"localhost", "LocalHost:80", "127.0.0.1:40123", "[::1]:40123", "[::1]"}) {
    CAPTURE(own);
    CHECK(is_own_name(own));
  }
  for (const char* foreign :
       {"", "evil.example", "localhost.evil.example:40123", "127.0.0.1.evil.example", "[::1", "[::1]x",
        "127.0.0.1:", "127.0.0.1:x", "localhost:40123:1", "127.0.0.2"}) {
    CAPTURE(foreign);
    CHECK_FALSE(is_own_name(foreign));
  }
}

TEST_CASE("secrets are the same or not") {
  CHECK(same_secret("abc", "abc"));
  CHECK_FALSE(same_secret("abc", "abd"));
  CHECK_FALSE(same_secret("abc", "ab"));
  CHECK(same_secret("", ""));
}

}  // namespace dtrun::rendezvous::access_test
