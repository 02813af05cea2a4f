// Nodes, a coordinator and a store that come and go: the real dtrun, several agents on one host.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/relay.h"

namespace dtrun::elastic_test {

using namespace dtrun::test;
using namespace std::chrono_literals;

namespace {

using Words = std::vector<std::string>;

std::string local(int port) { return "127.0.0.1:" + std::to_string(port); }

class Store {
 public:
  explicit Store(int port = free_port())
      : port_(port), process_({kDtrun, "store", "--bind", "127.0.0.1", "--port", std::to_string(port)}) {
    REQUIRE(process_.wait_for_out("listening on " + endpoint()));
  }
  int port() const { return port_; }
  std::string endpoint() const { return local(port_); }
  Process& process() { return process_; }

 private:
  const int port_;
  Process process_;
};

// An agent with one worker: a shell script that waits for the file `done`, and says when it starts.
class Node {
 public:
  Node(const std::string& endpoint, const std::filesystem::path& folder, const std::string& nnodes,
       Words options = {}, const std::string& conf = "last_call_timeout=1")
      : done_(folder / "done"), process_(argv(endpoint, nnodes, std::move(options), conf, done_)) {}

  Process& process() { return process_; }
  std::string out() const { return process_.out(); }
  bool starts(int generation, int rank, int world) const {
    return process_.wait_for_out("g" + std::to_string(generation) + " rank " + std::to_string(rank) + " of " +
                                 std::to_string(world));
  }

 private:
  static Words argv(const std::string& endpoint, const std::string& nnodes, Words options,
                    const std::string& conf, const std::filesystem::path& done) {
    Words words{kDtrun, "--nnodes",       nnodes, "--rdzv_endpoint",    endpoint, "--rdzv_conf",
                conf,   "--max_restarts", "2",    "--shutdown_timeout", "5"};
    words.insert(words.end(), options.begin(), options.end());
    const std::string script =
        "echo g$DTRUN_GENERATION rank $RANK of $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; "
        "while [ ! -e " +
        done.string() + " ]; do sleep 0.05; done";
    words.insert(words.end(), {"--", "/bin/sh", "-c", script});
    return words;
  }

  const std::filesystem::path done_;
  Process process_;
};

void let_finish(const std::filesystem::path& folder) { std::filesystem::create_directory(folder / "done"); }

nlohmann::json status_of(const std::string& endpoint) {
  Process status({kDtrun, "status", "--rdzv_endpoint", endpoint, "--json"});
  if (status.wait() != 0) return nlohmann::json::array();
  return nlohmann::json::parse(status.out());
}

int starts_in(const std::string& out) {
  int count = 0;
  for (std::size_t at = 0; (at = out.find(" rank ", at)) != std::string::npos; ++at) ++count;
  return count;
}

// One second of silence is enough to be given up,
std::string quick() {
  soon(1s);
  return "keep_alive_interval=0.5,keep_alive_max_attempt=2";
}
// and another one to give up.
std::string impatient() { return quick() + ",last_call_timeout=1,read_timeout=1"; }

bool says(const Process& process, const std::string& text) { return contains(process.err(), text); }

}  // namespace

TEST_CASE("a store that is killed and started again finds the job as it runs: nobody is restarted") {
  const Folder folder;
  auto store = std::make_unique<Store>();
  const int port = store->port();
  Node a(store->endpoint(), folder.path(), "2");
  Node b(store->endpoint(), folder.path(), "2");
  REQUIRE(eventually([&] { return starts_in(a.process().out()) == 1 && starts_in(b.process().out()) == 1; }));
  store->process().signal(SIGKILL);
  store->process().wait();
  REQUIRE(a.process().wait_for_err("workers keep running"));
  store = std::make_unique<Store>(port);
  CHECK(store->process().wait_for_out("taken over as it runs"));
  REQUIRE(eventually([&] {
    const auto runs = status_of(store->endpoint());
    return runs.size() == 1 && runs[0]["nodes"][0]["state"] == "running" &&
           runs[0]["nodes"][1]["state"] == "running";
  }));
  CHECK(status_of(store->endpoint())[0]["reason"] ==
        "the coordinator was restarted, and took the run over as it runs");
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
  CHECK(b.process().wait() == 0);
  CHECK(starts_in(a.process().out()) == 1);
  CHECK(starts_in(b.process().out()) == 1);
  store->process().signal(SIGINT);
  CHECK(store->process().wait() == 130);
}

TEST_CASE("a store says whom it refused, too") {
  const Folder folder;
  Store store;
  Node a(store.endpoint(), folder.path(), "2");
  REQUIRE(a.process().wait_for_err("joined 1 of 2"));
  Node b(store.endpoint(), folder.path(), "1:2");
  CHECK(b.process().wait() == 64);
  CHECK_MESSAGE(store.process().wait_for_out(" was refused: --nnodes is 1:2 there but 2:2 here\n"),
                store.process().out());
}

TEST_CASE("a store serves several runs, and a run of a name that is over begins afresh") {
  const Folder folder;
  Store store;
  Node a(store.endpoint(), folder.path(), "1:1", {"--rdzv_id", "one"});
  Node b(store.endpoint(), folder.path(), "1:1", {"--rdzv_id", "two"});
  CHECK(a.starts(1, 0, 1));
  CHECK(b.starts(1, 0, 1));
  CHECK(eventually([&] { return status_of(store.endpoint()).size() == 2; }));
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
  CHECK(b.process().wait() == 0);
  Node c(store.endpoint(), folder.path(), "1:1", {"--rdzv_id", "one"});
  CHECK(c.starts(1, 0, 1));
  CHECK(c.process().wait() == 0);
}

TEST_CASE("nodes come and go with --nnodes 1:3: taken in, regrouped at once, the free rank given again") {
  const Folder folder;
  Store store;
  Node a(store.endpoint(), folder.path(), "1:3");
  CHECK(a.starts(1, 0, 1));
  Node b(store.endpoint(), folder.path(), "1:3");
  CHECK(a.starts(2, 0, 2));
  CHECK(b.starts(2, 1, 2));
  Node c(store.endpoint(), folder.path(), "1:3");
  CHECK(c.starts(3, 2, 3));
  REQUIRE(a.starts(3, 0, 3));
  REQUIRE(b.starts(3, 1, 3));
  b.process().signal(SIGKILL);
  CHECK(c.starts(4, 1, 2));
  CHECK(a.starts(4, 0, 2));
  c.process().signal(SIGTERM);
  CHECK(c.process().wait() == 143);
  CHECK(a.starts(5, 0, 1));
  const auto runs = status_of(store.endpoint());
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["membership_changes"] == 4);
  CHECK(runs[0]["restarts"] == 0);
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
}

TEST_CASE("dtrun status finds the jobs of this host without being told where they are") {
  const Folder folder;
  const Words environment{"XDG_RUNTIME_DIR=" + folder.path().string()};
  Process none({kDtrun, "status"}, environment);
  CHECK(none.wait() == 0);
  CHECK(contains(none.out(), "no run of this user on this host"));
  Process job({kDtrun, "--nproc_per_node", "2", "--rdzv_id", "here", "--", "/bin/sleep", "60"}, environment);
  CHECK(run({kDtrun, "status", "here", "--until", "running"}, environment).exit_code == 0);
  const auto shown = [&] { return run({kDtrun, "status"}, environment).out; };
  CHECK(contains(shown(), "run here at unix:"));
  CHECK(contains(shown(), " 0-1 "));
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
  const std::string over = shown();
  CHECK_MESSAGE(contains(over, ": over, exit code 143, "), over);
  CHECK_MESSAGE(contains(over, " s ago\n  because stopped by SIGTERM"), over);
}

TEST_CASE("a program that fails in one way for a while is restarted until it does not") {
  const Folder folder;
  const std::string starts = folder / "starts";
  const std::string script = "echo >> " + starts + "; [ $(wc -l < " + starts + ") -gt 4 ] || exit 3";
  Process job({kDtrun, "--max_restarts", "20", "--", "/bin/sh", "-c", script});
  CHECK_MESSAGE(job.wait() == 0, job.err());
  CHECK_MESSAGE(
      says(job, "failed (exit code 3), soon after its start and 3 times in a row, restart 3 of 20 in 2 s"),
      job.err());
}

TEST_CASE("a program that fails in one way again and again is given up early only if that was asked for") {
  Process job({kDtrun, "--max_restarts", "9", "--crash_loop_limit", "3", "--", "/bin/sh", "-c", "exit 5"});
  CHECK(job.wait() == 5);
  const std::string why =
      "restarts used: 2 of 9 (soon after its start and 3 times in a row: --crash_loop_limit 3)";
  CHECK_MESSAGE(job.err().find(why) != std::string::npos, job.err());
  Process final(
      {kDtrun, "--max_restarts", "9", "--no-restart-exit-codes", "5", "--", "/bin/sh", "-c", "exit 5"});
  CHECK(final.wait() == 5);
  CHECK(final.err().find("which a restart would not cure") != std::string::npos);
}

TEST_CASE("connections that are reset: every agent is back in its seat, and its worker is the same process") {
  const Folder folder;
  Store store;
  Relay relay(store.port());
  Node a(local(relay.port()), folder.path(), "2");
  Node b(local(relay.port()), folder.path(), "2");
  const auto seated = [&] {
    const auto runs = status_of(store.endpoint());
    if (runs.size() != 1) return false;
    const auto& nodes = runs[0]["nodes"];
    return nodes.size() == 2 && nodes[0]["state"] == "running" && nodes[1]["state"] == "running" &&
           nodes[0]["pids"].size() == 1 && nodes[1]["pids"].size() == 1;
  };
  REQUIRE(eventually(seated));
  const auto before = status_of(store.endpoint());
  for (int round = 0; round < 5; ++round) {
    const int connections = relay.connections();
    soon(300ms);  // the coordinator keeps a seat for so long
    relay.reset();
    // The connections of two agents; with a key each first probes whether the port is open.
    REQUIRE(eventually([&] { return relay.connections() >= connections + 4 && seated(); }));
  }
  const auto after = status_of(store.endpoint());
  CHECK(after[0]["generation"] == 1);
  CHECK(after[0]["membership_changes"] == 0);
  for (int node = 0; node < 2; ++node)
    CHECK(after[0]["nodes"][node]["pids"] == before[0]["nodes"][node]["pids"]);
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
  CHECK(b.process().wait() == 0);
  CHECK(starts_in(a.process().out()) == 1);
  CHECK(starts_in(b.process().out()) == 1);
}

TEST_CASE("silence is noticed on both ends after the keep-alive: the others go on, the silenced one ends") {
  const Folder folder;
  Store store;
  Relay relay(store.port());
  Node a(store.endpoint(), folder.path(), "1:2", {}, impatient());
  CHECK(a.starts(1, 0, 1));
  Node b(local(relay.port()), folder.path(), "1:2", {}, impatient());
  REQUIRE(b.starts(2, 1, 2));
  REQUIRE(a.starts(2, 0, 2));
  relay.freeze();
  CHECK(a.starts(3, 0, 1));
  CHECK(b.process().wait(10s) == 69);
  CHECK_MESSAGE(
      says(b.process(), "lost the connection to the store at " + local(relay.port()) + " (silent for 1 s)"),
      b.process().err());
  CHECK(says(a.process(), "was silent for 1 s: stopp"));
  CHECK(says(a.process(), "dtrun: going on with 1 worker on 1 node"));
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
}

TEST_CASE("a stopped agent that hosts the coordinator is given up as read_timeout says") {
  const Folder folder;
  const std::string endpoint = local(free_port());
  Node a(endpoint, folder.path(), "2", {}, impatient());
  REQUIRE(a.process().wait_for_err("joined 1 of 2"));
  Node b(endpoint, folder.path(), "2", {}, impatient());
  REQUIRE(a.starts(1, 0, 2));
  REQUIRE(b.starts(1, 1, 2));
  a.process().signal(SIGSTOP);
  CHECK(b.process().wait(10s) == 69);
  CHECK_MESSAGE(says(b.process(), "its agent or node is down, or the network between"), b.process().err());
  a.process().signal(SIGCONT);
  a.process().signal(SIGTERM);
  CHECK(a.process().wait() == 143);
}

TEST_CASE("a dtrun that was stopped for longer than the keep-alive finds its job as it was") {
  const Folder folder;
  const std::string endpoint = local(free_port());
  Process job({kDtrun, "--nnodes", "1", "--rdzv_endpoint", endpoint, "--rdzv_conf", quick(), "--", "/bin/sh",
               "-c",
               "echo start; while [ ! -e " + (folder.path() / "done").string() + " ]; do sleep 0.05; done"});
  REQUIRE(job.wait_for_out("start"));
  for (int round = 0; round < 3; ++round) {
    job.signal(SIGSTOP);
    std::this_thread::sleep_for(1500ms);  // nothing happens: that is the point
    job.signal(SIGCONT);
    const Stopwatch watch;  // until a heartbeat has come since
    REQUIRE(eventually([&] {
      const double since = watch.wall() / 1.0s;
      const auto runs = status_of(endpoint);
      if (runs.size() != 1) return false;
      const auto& age = runs[0]["nodes"][0]["heartbeat_age"];
      return age.is_number() && age.get<double>() < since;
    }));
  }
  let_finish(folder.path());
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] start\n");
  CHECK_MESSAGE(job.err().find("silent") == std::string::npos, job.err());
}

TEST_CASE("a stopped agent that hosts the coordinator and goes on: every worker is the same process") {
  const Folder folder;
  const std::string endpoint = local(free_port());
  Node a(endpoint, folder.path(), "2", {}, quick());
  REQUIRE(a.process().wait_for_err("joined 1 of 2"));
  Node b(endpoint, folder.path(), "2", {}, quick());
  REQUIRE(a.starts(1, 0, 2));
  REQUIRE(b.starts(1, 1, 2));
  a.process().signal(SIGSTOP);
  REQUIRE(b.process().wait_for_err("(silent for 1 s); workers keep running"));
  soon(300ms);  // the coordinator keeps a seat for so long
  a.process().signal(SIGCONT);
  CHECK(b.process().wait_for_err("connected to the coordinator again; the workers were not interrupted"));
  let_finish(folder.path());
  CHECK(a.process().wait() == 0);
  CHECK(b.process().wait() == 0);
  CHECK(starts_in(a.out()) == 1);
  CHECK(starts_in(b.out()) == 1);
}

TEST_CASE("a node that had all the workers needs no store to know how the job ended; one of two does") {
  const Folder one, two;
  auto store = std::make_unique<Store>();
  Node all(store->endpoint(), one.path(), "1", {"--rdzv_id", "one"}, impatient());
  Node a(store->endpoint(), two.path(), "2", {"--rdzv_id", "two"}, impatient());
  Node b(store->endpoint(), one.path(), "2", {"--rdzv_id", "two"}, impatient());
  for (const Node* node : {&all, &a, &b}) REQUIRE(eventually([&] { return starts_in(node->out()) == 1; }));
  store->process().signal(SIGKILL);
  store->process().wait();
  let_finish(one.path());
  CHECK(all.process().wait() == 0);
  CHECK_MESSAGE(says(all.process(), "but all workers of the job ended with 0"), all.process().err());
  CHECK(b.process().wait() == 69);
  CHECK_MESSAGE(says(b.process(), "how the others ended is not known here"), b.process().err());
  CHECK(a.process().wait() == 69);
}

TEST_CASE("a crash loop does not begin anew with a store that is started again") {
  const Folder folder;
  auto store = std::make_unique<Store>();
  const int port = store->port();
  const std::string script = "echo start $TORCHELASTIC_RESTART_COUNT; sleep 1; exit 5";
  Process job({kDtrun, "--nnodes", "1:1", "--rdzv_endpoint", store->endpoint(), "--max_restarts", "9",
               "--crash_loop_limit", "3", "--", "/bin/sh", "-c", script});
  REQUIRE(job.wait_for_out("start 1"));
  store->process().signal(SIGKILL);
  store->process().wait();
  store = std::make_unique<Store>(port);
  CHECK(job.wait() == 5);
  CHECK_MESSAGE(says(job, "3 times in a row"), job.err());
  CHECK(job.out().find("start 2") != std::string::npos);
  CHECK(job.out().find("start 3") == std::string::npos);
}

TEST_CASE("dtrun status shows the built-in trainer's steps as they come, not at the next heartbeat") {
  const Folder folder;
  Store store;
  const std::string config = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";
  Process job({kDtrun, "--nnodes", "1:1", "--rdzv_endpoint", store.endpoint(), "--rdzv_conf",
               "keep_alive_interval=100", "--rdzv_id", "steps", "--lanes", "1", config,
               "output_dir=" + (folder.path() / "out").string(), "train.max_steps=100000"});
  const auto step = [&]() -> long {
    const auto runs = status_of(store.endpoint());
    return runs.size() == 1 && runs[0].contains("progress") ? runs[0]["progress"]["step"].get<long>() : 0;
  };
  const Words until{"--rdzv_id", "steps", "--until", "running"};
  CHECK(run(joined({kDtrun, "status", "--rdzv_endpoint", store.endpoint()}, until)).exit_code == 0);
  REQUIRE_MESSAGE(eventually([&] { return step() > 0; }), job.err());
  const long first = step();
  CHECK(eventually([&] { return step() > first; }));
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
}

}  // namespace dtrun::elastic_test
