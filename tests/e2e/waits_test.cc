// Who waits for whom: the rank that all wait for is named, on whichever node, before anybody gives up.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::waits_test {

using namespace dtrun::test;

namespace {

// A training of two workers on each of two hosts, of which a rank that others wait for is told after 3 s.
class TwoNodes {
 public:
  TwoNodes() : hosts_(2) {
    const std::string notice = std::to_string(soon(std::chrono::seconds(3)).count());
    for (int node = 0; node < 2; ++node) {
      const std::vector<std::string> options = {"--nnodes",         "2",
                                                "--nproc_per_node", "2",
                                                "--rdzv_endpoint",  Hosts::address(0) + ":29410",
                                                "--rdzv_id",        "waits",
                                                "--node_rank",      std::to_string(node),
                                                "--lanes",          "1",
                                                "--notice_after",   notice,
                                                "--max_restarts",   "2",
                                                "--log_dir",        (hosts_.directory() / "logs").string()};
      jobs_.push_back(
          std::make_unique<Process>(hosts_.on(node, endless_training(options, hosts_.directory() / "out"))));
    }
  }

  Process& job(int node) { return *jobs_[static_cast<std::size_t>(node)]; }
  std::filesystem::path file(int node, const std::string& name) const {
    return hosts_.seen_from_here(node, name);
  }
  bool trains(long steps) const { return dtrun::test::trains(file(0, "out"), steps); }

  // The process of this rank, which is on that node.
  pid_t worker(int node, const std::string& rank) {
    for (pid_t pid : children_of(job(node).pid(), "dtrun-worker"))
      if (contains(read_if_there("/proc/" + std::to_string(pid) + "/environ"),
                   std::string("\0RANK=", 6) + rank + '\0'))
        return pid;
    return -1;
  }

 private:
  Hosts hosts_;
  std::vector<std::unique_ptr<Process>> jobs_;
};

}  // namespace

TEST_SUITE("namespaces") {
  TEST_CASE(
      "a rank that stands still is named on every node with what it has not sent, and goes on as if nothing "
      "was") {
    if (!why_no_hosts().empty()) return skip(why_no_hosts());
    TwoNodes run;
    REQUIRE_MESSAGE(run.trains(5), run.job(0).err());
    const pid_t stopped = run.worker(1, "3");
    REQUIRE(stopped > 0);
    kill(stopped, SIGSTOP);
    for (int node : {0, 1}) {
      Process& job = run.job(node);
      CHECK_MESSAGE(job.wait_for_err("3 ranks wait for it"), job.err());
      const std::string err = job.err();
      CAPTURE(err);
      CHECK(contains(err, "rank 3 on node1 has not "));
      CHECK(contains(err, "; it stands at: stopped (by a signal); 3 ranks wait for it"));
    }
    kill(stopped, SIGCONT);

    // Its last operations outlive it, whatever ends it.
    const pid_t killed = run.worker(0, "1");
    REQUIRE(killed > 0);
    kill(killed, SIGKILL);
    REQUIRE_MESSAGE(run.job(0).wait_for_err("going on with 4 workers"), run.job(0).err());
    end_as_calm({&run.job(0), &run.job(1)}, {run.file(0, "out"), run.file(1, "out")});
    for (int node : {0, 1}) CHECK(std::ranges::count(run.job(node).err(), '\n') < 40);
    const std::string operations = read_if_there(run.file(0, "logs/waits/attempt_1/1/last_operations.jsonl"));
    CAPTURE(operations);
    CHECK(std::ranges::count(operations, '\n') > 10);
    CHECK(contains(operations, "\"operation\":\"send\",\"bucket\":0,"));
    CHECK(contains(operations, "\"operation\":\"receive\""));
    CHECK(read_if_there(run.file(0, "logs/waits/attempt_1/3/last_operations.jsonl")).empty());
  }

  TEST_CASE(
      "a run without trouble tells nothing, however often ranks wait, nor leaves operations when told to "
      "end") {
    if (!why_no_hosts().empty()) return skip(why_no_hosts());
    TwoNodes run;
    REQUIRE_MESSAGE(run.trains(40), run.job(0).err());
    for (int node : {0, 1}) run.job(node).signal(SIGINT);
    for (int node : {0, 1}) {
      const Ended ended = run.job(node).end();
      CAPTURE(ended.err);
      CHECK(ended.exit_code == 130);
      const std::string folder = "logs/waits/attempt_1/" + std::to_string(2 * node);
      CHECK(std::filesystem::exists(run.file(node, folder)));
      CHECK_FALSE(std::filesystem::exists(run.file(node, folder + "/last_operations.jsonl")));
      CHECK_FALSE(contains(ended.err, "wait for it"));
      CHECK_FALSE(contains(ended.err, "get on again"));
    }
  }
}

}  // namespace dtrun::waits_test
