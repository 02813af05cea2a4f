#include "cmd/launch/meeting_place.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "agent/system/descriptor.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;

// A place with somebody who looks after it.
struct Host {
  Host()
      : place(std::move(MeetingPlace::open()).value()), tended([this] {
          while (!over) {
            place.greet();
            std::this_thread::sleep_for(2ms);
          }
        }) {}
  ~Host() {
    over = true;
    tended.join();
  }
  MeetingPlace place;
  std::atomic<bool> over{false};
  std::thread tended;
};

TEST_CASE("the first address that is reached is taken, and the others' reasons are told") {
  const Host host;
  const Sight sight = look_for({"127.0.0.1", "::1"}, host.place.port(), host.place.nonce(), 5s);
  CHECK(sight.address == "127.0.0.1");
  CHECK(host.place.port() >= 20000);
  CHECK(host.place.port() < 32768);
}

TEST_CASE("an address where another one listens is not the host's") {
  const Host host, other;
  const Sight sight = look_for({"127.0.0.1"}, other.place.port(), host.place.nonce(), 5s);
  CHECK(sight.address.empty());
  REQUIRE(sight.why_not.size() == 1);
  CHECK(sight.why_not[0] == "127.0.0.1: another host, or another program, has this address");
}

TEST_CASE("a closed port is refused, and a port where nobody speaks is silent") {
  int port = 0;
  { port = std::move(MeetingPlace::open()).value().port(); }
  CHECK(look_for({"127.0.0.1"}, port, "nonce", 5s).why_not == std::vector<std::string>{"127.0.0.1: refused"});
  const MeetingPlace untended = std::move(MeetingPlace::open()).value();
  CHECK(look_for({"127.0.0.1"}, untended.port(), "nonce", 200ms).why_not ==
        std::vector<std::string>{"127.0.0.1: silent"});
  CHECK(look_for({"no address"}, port, "nonce", 200ms).why_not ==
        std::vector<std::string>{"no address: no numeric address"});
}

TEST_CASE("two places of one host have two ports") {
  const MeetingPlace one = std::move(MeetingPlace::open()).value(),
                     two = std::move(MeetingPlace::open()).value();
  CHECK(one.port() != two.port());
  CHECK(one.nonce() != two.nonce());
}

}  // namespace
}  // namespace dtrun::cmd
