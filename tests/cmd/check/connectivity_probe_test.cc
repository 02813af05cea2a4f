#include "cmd/check/connectivity_probe.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "proto/base/descriptor.h"
#include "tests/support/clock.h"

namespace dtrun::cmd::connectivity_probe_test {
namespace {

using namespace std::chrono_literals;

// A place with somebody who looks after it.
struct Host {
  Host()
      : place(std::move(ProbeListener::open()).value()), tended([this] {
          while (!over) {
            place.greet();
            std::this_thread::sleep_for(2ms);
          }
        }) {}
  ~Host() {
    over = true;
    tended.join();
  }
  ProbeListener place;
  std::atomic<bool> over{false};
  std::thread tended;
};

ProbeResult look_at(const std::vector<std::string>& addresses, int port, const std::string& nonce,
                    std::chrono::milliseconds timeout) {
  return probe_all({{.addresses = addresses, .port = port, .nonce = nonce}}, timeout).front();
}

TEST_CASE("the first address that is reached is taken, and the others' reasons are told") {
  const Host host;
  const ProbeResult result = look_at({"127.0.0.1", "::1"}, host.place.port(), host.place.nonce(), 60s);
  CHECK(result.address == "127.0.0.1");
  CHECK(result.from == "127.0.0.1");
  CHECK(host.place.port() >= 20000);
  CHECK(host.place.port() < 32768);
}

TEST_CASE("an address where another one listens is not the host's") {
  const Host host, other;
  const ProbeResult result = look_at({"127.0.0.1"}, other.place.port(), host.place.nonce(), 60s);
  CHECK(result.address.empty());
  REQUIRE(result.why_not.size() == 1);
  CHECK(result.why_not[0] == "127.0.0.1: another host, or another program, has this address");
}

TEST_CASE("a closed port is refused, and a port where nobody speaks is silent") {
  int port = 0;
  { port = std::move(ProbeListener::open()).value().port(); }
  CHECK(look_at({"127.0.0.1"}, port, "nonce", 60s).why_not == std::vector<std::string>{"127.0.0.1: refused"});
  const ProbeListener untended = std::move(ProbeListener::open()).value();
  CHECK(look_at({"127.0.0.1"}, untended.port(), "nonce", 200ms).why_not ==
        std::vector<std::string>{"127.0.0.1: silent"});
  CHECK(look_at({"no address"}, port, "nonce", 200ms).why_not ==
        std::vector<std::string>{"no address: no numeric address"});
}

TEST_CASE("several places are looked for at once, and one of them is as slow as it is alone") {
  const Host one, other;
  const ProbeListener untended = std::move(ProbeListener::open()).value();
  const auto place = [](const ProbeListener& at) {
    return ProbeTarget{.addresses = {"127.0.0.1"}, .port = at.port(), .nonce = at.nonce()};
  };
  const test::Stopwatch watch;
  const std::vector<ProbeResult> results =
      probe_all({place(untended), place(one.place), place(other.place), place(untended)}, test::soon(300ms));
  CHECK(watch.fair() < 3s);
  REQUIRE(results.size() == 4);
  CHECK(results[0].why_not == std::vector<std::string>{"127.0.0.1: silent"});
  CHECK(results[1].address == "127.0.0.1");
  CHECK(results[2].address == "127.0.0.1");
  CHECK(results[3].address.empty());
  CHECK(probe_all({}, 60s).empty());
}

TEST_CASE("whoever looks for others is found meanwhile") {
  ProbeListener mine = std::move(ProbeListener::open()).value();
  const std::vector<ProbeResult> results =
      probe_all({{.addresses = {"127.0.0.1"}, .port = mine.port(), .nonce = mine.nonce()}}, 60s, &mine);
  CHECK(results[0].address == "127.0.0.1");
}

TEST_CASE("who asks for the connections to what was reached has them open") {
  ProbeListener mine = std::move(ProbeListener::open()).value();
  const ProbeTarget place{.addresses = {"127.0.0.1"}, .port = mine.port(), .nonce = mine.nonce()};
  std::vector<Descriptor> connections;
  CHECK(probe_all({place, {}}, 60s, &mine, &connections)[1].address.empty());
  REQUIRE(connections.size() == 2);
  CHECK(connections[0].open());
  CHECK_FALSE(connections[1].open());
}

TEST_CASE("two places of one host have two ports") {
  const ProbeListener one = std::move(ProbeListener::open()).value(),
                      two = std::move(ProbeListener::open()).value();
  CHECK(one.port() != two.port());
  CHECK(one.nonce() != two.nonce());
}

}  // namespace
}  // namespace dtrun::cmd::connectivity_probe_test
