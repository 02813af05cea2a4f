// Nodes that leave, are refused, or come back: the messages to the others, and their times. Several agents on
// one host.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::membership_test {

using namespace dtrun::test;
using namespace std::chrono_literals;

namespace {

using Words = std::vector<std::string>;

struct Two {
  std::unique_ptr<Process> host, guest;
};

// The agents of one run; the first to start hosts the coordinator.
class Launch {
 public:
  explicit Launch(std::string nnodes) : nnodes_(std::move(nnodes)) {}

  // Agent `rank` with one worker, which writes "up" and its world size, and then does `script`.
  std::unique_ptr<Process> start(int rank, const Words& options = {}, const std::string& script = "sleep 600",
                                 const Words& environment = {}) const {
    Words words{kDtrun,
                "--nnodes",
                nnodes_,
                "--node_rank",
                std::to_string(rank),
                "--rdzv_id",
                "launch",
                "--rdzv_endpoint",
                endpoint_,
                "--rdzv_conf",
                "last_call_timeout=1,join_timeout=60"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "/bin/sh", "-c", "echo up $WORLD_SIZE; " + script});
    return std::make_unique<Process>(words, environment);
  }

  // Two agents whose workers run; the first one hosts.
  Two start_two() const {
    auto host = start(0);
    REQUIRE(host->wait_for_err("joined 1 of 2"));
    auto guest = start(1);
    REQUIRE(host->wait_for_out("up 2"));
    REQUIRE(guest->wait_for_out("up 2"));
    return {std::move(host), std::move(guest)};
  }

  Words status(const Words& options) const {
    Words words{kDtrun, "status", "--rdzv_endpoint", endpoint_};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }

 private:
  const std::string nnodes_;
  const std::string endpoint_ = "127.0.0.1:" + std::to_string(free_port());
};

}  // namespace

TEST_CASE("Ctrl-C on one node of a job that needs it ends the job at once, and the others say whose it was") {
  const Launch launch("2");
  const Two two = launch.start_two();
  const auto &host = two.host, &guest = two.guest;
  guest->signal(SIGINT);
  CHECK(guest->wait() == 128 + SIGINT);
  CHECK(host->wait() == 69);
  CHECK_MESSAGE(contains(host->err(), "left (told to by SIGINT): stopp"), host->err());
  CHECK_MESSAGE(contains(host->err(), "was stopped by SIGINT (Ctrl-C), and --nnodes 2 needs all nodes\n"),
                host->err());
}

TEST_CASE("a node that a scheduler stops is waited for, and the others say at once whom they wait for") {
  const Launch launch("2");
  const Two two = launch.start_two();
  const auto &host = two.host, &guest = two.guest;
  const Stopwatch watch;
  guest->signal(SIGTERM);
  CHECK(host->wait_for_err("left (told to by SIGTERM): stopp"));
  CHECK(host->wait_for_err("missing: "));
  Process status(launch.status({"--json"}));
  CHECK(status.wait() == 0);
  const auto run = nlohmann::json::parse(status.out()).at(0);
  CHECK(run["phase"] == "gathering");
  CHECK(run["join_timeout_left"].get<double>() >= 60 - watch.wall() / 1.0s);  // all of it, since then
  CHECK(run["news"].back()["kind"] == "left");
  const auto again = launch.start(1);
  CHECK(again->wait_for_out("up 2"));
}

TEST_CASE("a host that is told to end tells the others, and those who watch the run") {
  const Launch launch("1:2");
  const Two two = launch.start_two();
  const auto &host = two.host, &guest = two.guest;
  Process watch(launch.status({"--watch", "launch", "--exit-status", "--json"}));
  REQUIRE(watch.wait_for_out("\"running\""));
  host->signal(SIGTERM);
  CHECK(host->wait() == 128 + SIGTERM);
  CHECK(guest->wait() == 69);
  CHECK_MESSAGE(contains(guest->err(), ", which hosts the coordinator, was stopped by SIGTERM\n"),
                guest->err());
  CHECK_FALSE(contains(guest->err(), "trying again"));
  CHECK(watch.wait() == 69);
  CHECK(contains(watch.out(), "\"phase\":\"over\""));
}

TEST_CASE("a host does not wait for a guest that stands still") {
  const Launch launch("1:2");
  const Two two = launch.start_two();
  const auto &host = two.host, &guest = two.guest;
  guest->signal(SIGSTOP);
  host->signal(SIGTERM);
  CHECK(host->wait(8s) == 128 + SIGTERM);
  guest->signal(SIGCONT);
  CHECK(guest->wait() == 69);
  CHECK_MESSAGE(contains(guest->err(), ", which hosts the coordinator, was stopped by SIGTERM\n"),
                guest->err());
}

TEST_CASE("who waits hears who was refused and why, once, and so does the end of the wait") {
  const Launch launch("2");
  soon(8s);
  const auto host = launch.start(0, {"--rdzv_conf", "join_timeout=8"});
  REQUIRE(host->wait_for_err("joined 1 of 2"));
  for (int round = 0; round < 3; ++round) CHECK(launch.start(1, {"--max_restarts", "3"})->wait() == 64);
  const std::string why = "was refused: --max_restarts is 3 there but 0 here";
  CHECK(host->wait_for_err(why + "\n"));
  CHECK(host->wait() == 69);
  CHECK_MESSAGE(host->err().find(why + "\n") == host->err().rfind(why + "\n"), host->err());
  CHECK_MESSAGE(contains(host->err(), "only 1 of 2 nodes joined within 8 s; "), host->err());
  CHECK_MESSAGE(contains(host->err(), why + ", "), host->err());
}

TEST_CASE("a host that was killed and is started again takes its place at once") {
  const Launch launch("2");
  Two two = launch.start_two();
  auto &host = two.host, &guest = two.guest;
  host->signal(SIGKILL);
  host->wait();
  REQUIRE(guest->wait_for_err("trying again"));
  host = launch.start(0);
  CHECK(host->wait_for_out("up 2"));
  CHECK_MESSAGE(guest->wait_for_err("came back with a new agent: stopp"), guest->err());
  CHECK(guest->wait_for_out("up 2\n[default:1] up 2"));
  CHECK_FALSE(contains(host->err(), "places of the run are taken"));
}

TEST_CASE("work that had ended well runs again only with a word") {
  const Launch launch("2");
  auto host = launch.start(0);
  REQUIRE(host->wait_for_err("joined 1 of 2"));
  const auto guest = launch.start(1, {}, "exit 0");
  REQUIRE(host->wait_for_out("up 2"));
  REQUIRE(guest->wait_for_out("up 2"));
  host->signal(SIGKILL);
  host->wait();
  host = launch.start(0, {}, "exit 0");
  CHECK(host->wait() == 0);
  CHECK(guest->wait() == 0);
  CHECK_MESSAGE(contains(guest->err(), "rank 1 had ended with 0 and runs again: "), guest->err());
}

TEST_CASE("dtrun status --ready tells whether this host's workers are at work, without the coordinator") {
  const Folder registry;
  const Words environment{"XDG_RUNTIME_DIR=" + registry.path().string()};
  const auto ready = [&](const Words& more = {}) {
    Words words{kDtrun, "status", "--ready"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, environment);
  };
  CHECK(ready().exit_code == 69);
  const Launch launch("2");
  auto host = launch.start(0, {}, "sleep 600", environment);
  REQUIRE(host->wait_for_err("joined 1 of 2"));
  const Ended waits = ready();
  CHECK(waits.exit_code == 69);
  CHECK(contains(waits.err, "run launch is not under way here: it waits for nodes"));
  auto guest = launch.start(1);
  REQUIRE(host->wait_for_out("up 2"));
  CHECK(ready().exit_code == 0);
  CHECK(ready({"launch"}).exit_code == 0);
  CHECK(ready({"another"}).exit_code == 69);
  guest->signal(SIGKILL);
  REQUIRE(host->wait_for_err("missing: "));
  CHECK(ready().exit_code == 69);
  host->signal(SIGTERM);
  host->wait();
  CHECK(ready().exit_code == 69);
}

}  // namespace dtrun::membership_test
