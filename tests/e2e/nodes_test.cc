// Two machines that share nothing but a network: network namespaces with a cable that can be pulled out, and
// an output directory of their own on each. After any failure of one of them, the model has the bytes of a
// run on one worker.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::nodes_test {

using namespace dtrun::test;

namespace {

// Two hosts and the agents on them. The first one hosts the coordinator; its network is its own, so that its
// port is free.
class Pair {
 public:
  explicit Pair(std::vector<std::string> options) : options_(std::move(options)) {}

  std::unique_ptr<Process> start(int host, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv{"--rdzv_endpoint",  Hosts::address(0) + ":29400",
                                  "--rdzv_id",        "pair",
                                  "--nproc_per_node", "1",
                                  "--lanes",          "1"};
    argv.insert(argv.end(), options_.begin(), options_.end());
    argv.insert(argv.end(), more.begin(), more.end());
    return std::make_unique<Process>(
        hosts.on(host, endless_training(argv, hosts.directory() / "out", {"train.save_steps=20"})));
  }
  std::filesystem::path output(int host) const { return hosts.seen_from_here(host, "out"); }

  bool trains(int host, long steps = 13) const { return dtrun::test::trains(output(host), steps); }
  // After what has happened to them.
  bool trains_with(int workers, int host) const {
    const std::string of = "\"world_size\":" + std::to_string(workers) + ",\"generation\":";
    return eventually([&] {
      const std::string line = newest_line(output(host));
      return contains(line, of) && !contains(line, of + "1,");
    });
  }
  void end_as_calm(const std::vector<Process*>& agents) const {
    dtrun::test::end_as_calm(agents, {output(0), output(1)});
  }

  const Hosts hosts{2};

 private:
  const std::vector<std::string> options_;
};

const std::vector<std::string> kBoth{"--nnodes", "2"};
std::vector<std::string> one_is_enough(const std::string& more = "") {
  return {"--nnodes", "1:2",         "--max_restarts",
          "3",        "--rdzv_conf", lost_after_two_seconds() + ",last_call_timeout=20" + more};
}

// The coordinator counts node1 among its members: it waits for the others, or goes on with them already.
bool is_back(const Process& agent) {
  return eventually([&] {
    const std::string said = agent.err();
    return contains(said, "joined 2 of 2") || contains(said, "gets ready to take part");
  });
}

void ends(Process& agent, int exit_code) {
  const Ended ended = agent.end();
  CHECK_MESSAGE(ended.exit_code == exit_code, ended.err);
}

}  // namespace

TEST_CASE("a worker killed on one node: the other node goes on with what its worker holds") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Pair pair({"--nnodes", "2", "--max_restarts", "1"});
  const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1);
  // Past the first checkpoint.
  REQUIRE_MESSAGE(pair.trains(0, 30), first->err() << second->err());
  kill(only_worker(*second), SIGKILL);
  REQUIRE_MESSAGE(first->wait_for_err("going on at step"), first->err());
  CHECK_MESSAGE(contains(first->err(), "rank 1 on node1 failed (signal 9 (SIGKILL))"), first->err());
  CHECK_MESSAGE(pair.trains_with(2, 0), first->err() << second->err());
  pair.end_as_calm({first.get(), second.get()});
}

TEST_CASE("three workers on each of two nodes, which exchange in two levels, give the bytes of one worker") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Hosts hosts(2);
  const std::vector<std::string> six{"train.micro_batch_size=4"};  // one with two microbatches
  const auto start = [&](int host) {
    return std::make_unique<Process>(
        hosts.on(host, training({"--nnodes", "2", "--node_rank", std::to_string(host), "--rdzv_endpoint",
                                 Hosts::address(0) + ":29400", "--rdzv_id", "levels", "--nproc_per_node", "3",
                                 "--lanes", "1"},
                                hosts.directory() / "out", joined(six, {"train.max_steps=30"}))));
  };
  const auto first = start(0), second = start(1);
  ends(*first, 0);
  ends(*second, 0);
  CHECK(model(hosts.seen_from_here(0, "out")) == quiet_model(30, six));
  CHECK_FALSE(std::filesystem::exists(hosts.seen_from_here(1, "out/model.safetensors")));
}

TEST_CASE("the newest checkpoint is used wherever it lies, also on a node that is not rank 0's") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Pair pair(kBoth);
  {
    const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1, {"--node_rank", "1"});
    REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
    first->signal(SIGTERM);
    ends(*first, 143);
    second->signal(SIGTERM);
    (void)second->end();
  }
  REQUIRE(std::filesystem::remove_all(pair.output(1) / "checkpoints") > 0);  // node1's copies of the run
  const auto first = pair.start(0, {"--node_rank", "1"}), second = pair.start(1, {"--node_rank", "0"});
  REQUIRE_MESSAGE(pair.trains(1), first->err() << second->err());
  CHECK_MESSAGE(second->wait_for_err("held by rank 1"), second->err());
  pair.end_as_calm({first.get(), second.get()});
}

TEST_CASE("the node of rank 0 is lost with its disk: the other one goes on with what its worker holds") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Pair pair(one_is_enough());
  const auto first = pair.start(0, {"--node_rank", "1"}), second = pair.start(1, {"--node_rank", "0"});
  // Past the first checkpoint.
  REQUIRE_MESSAGE(pair.trains(1, 30), first->err() << second->err());
  second->signal(SIGKILL);
  ends(*second, 137);
  std::filesystem::remove_all(pair.output(1));
  CHECK_MESSAGE(first->wait_for_err("going on at step"), first->err());
  CHECK_MESSAGE(pair.trains_with(1, 0), first->err());
  pair.end_as_calm({first.get()});
}

TEST_CASE("the node of rank 0 is told to stop: it hands over, and no step is done again") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Pair pair(one_is_enough());
  const auto first = pair.start(0, {"--node_rank", "1"}), second = pair.start(1, {"--node_rank", "0"});
  REQUIRE_MESSAGE(pair.trains(1), first->err() << second->err());
  second->signal(SIGTERM);
  ends(*second, 143);
  CHECK_MESSAGE(pair.trains_with(1, 0), first->err());
  pair.end_as_calm({first.get()});
  const std::string said = first->err();
  CHECK_MESSAGE(contains(said, "going on at step"), said);
  CHECK_MESSAGE(!contains(said, "resumed from step"), said);
  CHECK_MESSAGE(!contains(said, "done again"), said);
}

TEST_CASE(
    "a cut cable: the node with the coordinator goes on alone, the other one ends with 69 and says why") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  // A second more without its coordinator until an agent gives up.
  const Pair pair(one_is_enough(",read_timeout=1"));
  const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1);
  REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
  const pid_t lonely = only_worker(*second);
  pair.hosts.cut(1);
  const Ended b = second->end();
  CHECK_MESSAGE(b.exit_code == 69, b.err);
  CHECK_MESSAGE(contains(b.err, "the coordinator at 10.77.0.1:29400 was out of reach"), b.err);
  CHECK(kill(lonely, 0) != 0);
  CHECK_MESSAGE(pair.trains_with(1, 0), first->err());
  CHECK_MESSAGE(contains(first->err(), "node1 was silent for 2 s"), first->err());
  pair.end_as_calm({first.get()});
}

TEST_CASE("a node that dies at once and comes back with an empty disk is given the state") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Pair pair(one_is_enough());
  const auto first = pair.start(0, {"--node_rank", "0"});
  auto second = pair.start(1);
  REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
  const pid_t orphan = only_worker(*second);
  second->signal(SIGKILL);
  ends(*second, 137);
  CHECK(eventually([&] { return kill(orphan, 0) != 0; }));
  std::filesystem::remove_all(pair.output(1));
  REQUIRE_MESSAGE(pair.trains_with(1, 0), first->err() << second->err());
  second = pair.start(1);
  REQUIRE_MESSAGE(first->wait_for_err("node1 is back"), first->err() << second->err());
  CHECK_MESSAGE(pair.trains_with(2, 0), first->err() << second->err());
  pair.end_as_calm({first.get(), second.get()});
}

TEST_SUITE("long") {
  TEST_CASE("a cut cable when both nodes are needed: the job ends with 69 and says who is missing") {
    if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
    const Pair pair(
        {"--nnodes", "2", "--rdzv_conf", lost_after_two_seconds() + ",join_timeout=3,read_timeout=1"});
    const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1);
    REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
    pair.hosts.cut(1);
    const Ended a = first->end();
    CHECK_MESSAGE(a.exit_code == 69, a.err);
    CHECK_MESSAGE(contains(a.err, "node1 was silent for 2 s"), a.err);
    CHECK_MESSAGE(contains(a.err, "only 1 of 2 nodes"), a.err);
    ends(*second, 69);
  }

  TEST_CASE("a cable that is plugged in again: the node comes back and takes its part") {
    if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
    const Pair pair(one_is_enough());
    const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1);
    REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
    pair.hosts.cut(1);
    REQUIRE_MESSAGE(pair.trains_with(1, 0), first->err() << second->err());
    pair.hosts.mend(1);
    REQUIRE_MESSAGE(is_back(*second), second->err());
    CHECK_MESSAGE(pair.trains_with(2, 0), first->err() << second->err());
    pair.end_as_calm({first.get(), second.get()});
  }

  TEST_CASE("a stopped agent is noticed by its silence, and takes its part again once it goes on") {
    if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
    const Pair pair(one_is_enough());
    const auto first = pair.start(0, {"--node_rank", "0"}), second = pair.start(1);
    REQUIRE_MESSAGE(pair.trains(0), first->err() << second->err());
    // As when a whole host sleeps. The worker stays asleep until the job has gone on without it.
    const pid_t worker = only_worker(*second);
    kill(worker, SIGSTOP);
    second->signal(SIGSTOP);
    REQUIRE_MESSAGE(pair.trains_with(1, 0), first->err() << second->err());
    kill(worker, SIGCONT);
    second->signal(SIGCONT);
    REQUIRE_MESSAGE(is_back(*second), second->err());
    CHECK_MESSAGE(contains(first->err(), "node1 was silent for 2 s"), first->err());
    CHECK_MESSAGE(pair.trains_with(2, 0), first->err() << second->err());
    pair.end_as_calm({first.get(), second.get()});
  }
}

}  // namespace dtrun::nodes_test
