#include <doctest/doctest.h>

#include <functional>

#include "cmd/check/core/findings.h"
#include "tests/cmd/check/core/facts_of_tests.h"

namespace dtrun::cmd::node_findings_test {
namespace {

using Texts = std::vector<std::string>;
constexpr std::int64_t kMebi = 1 << 20;

struct NodeFault {
  const char* check;
  Grade grade;
  const char* says;  // a part of the text
  std::function<void(NodeFacts&)> plant;
};

NodeFacts node_with_gpus() {
  NodeFacts node = healthy_node();
  node.gpus = {"H200", "H200"};
  node.driver = "580.65.06, CUDA 13.0";
  return node;
}

TEST_CASE("nothing is said against a node in order") {
  CHECK(troubles(findings_of(healthy_node())) == Texts{});
  const std::vector<Finding> all = findings_of(node_with_gpus());
  CHECK(troubles(all) == Texts{});
  CHECK(all.size() == 11);
  CHECK(all.back().text == "2 GPUs (H200), driver 580.65.06, CUDA 13.0");
}

TEST_CASE("each fault of a node is found by its own check, which says what and what to do") {
  const std::vector<NodeFault> faults = {
      {"plan", Grade::kFailed, "no such data", [](auto& n) { n.refusal = "no such data"; }},
      {"worker", Grade::kFailed, "does not start", [](auto& n) { n.worker.clear(); }},
      {"worker", Grade::kFailed, "protocol 5", [](auto& n) { n.worker = "dtrun-worker 0.1.0, protocol 5"; }},
      {"host name", Grade::kWarning, "127.0.1.1", [](auto& n) { n.means = {"127.0.1.1"}; }},
      {"host name", Grade::kWarning, "no address", [](auto& n) { n.name_problem = "unknown", n.means = {}; }},
      {"host name", Grade::kFailed, "another machine", [](auto& n) { n.means = {"10.0.0.99"}; }},
      {"route", Grade::kFailed, "unreachable",
       [](auto& n) { n.route_problem = "n: Network is unreachable"; }},
      {"endpoint", Grade::kFailed, "sshd", [](auto& n) { n.listener = "node0:29400 is sshd's"; }},
      {"open files", Grade::kWarning, "limit is 543", [](auto& n) { n.files = 543; }},
      {"open files", Grade::kFailed, "only 30", [](auto& n) { n.files_problem = "only 30 files"; }},
      {"shared memory", Grade::kWarning, "127 MB", [](auto& n) { n.shm_size = 128 * kMebi - 1; }},
      {"CPUs", Grade::kWarning, "cpu.max gives 7.9 CPUs",
       [](auto& n) { n.quota = 7.9, n.quota_by = "cpu.max"; }},
      {"CPUs", Grade::kWarning, "2 workers x 5 lanes", [](auto& n) { n.lanes = 5; }},
      {"output_dir", Grade::kFailed, "three checkpoints", [](auto& n) { n.free = 299'999'999; }},
      {"output_dir", Grade::kFailed, "0.5 MiB free", [](auto& n) { n.checkpoint = 0, n.free = kMebi / 2; }},
      {"stacks", Grade::kWarning, "cannot be read", [](auto& n) { n.reads_stacks = false; }},
      {"GPUs", Grade::kFailed, "not loaded",
       [](auto& n) { n.gpu_problem = "the NVIDIA driver is not loaded", n.gpus = {}; }},
      {"GPUs", Grade::kFailed, "GPU 1 does not answer", [](auto& n) { n.gpus[1] = ""; }},
      {"GPUs", Grade::kWarning, "pid 77", [](auto& n) { n.gpu_use = {"GPU 1: held by others (pid 77)"}; }}};
  for (const NodeFault& fault : faults) {
    CAPTURE(fault.says);
    NodeFacts node = node_with_gpus();
    fault.plant(node);
    const std::vector<Finding> findings = findings_of(node);
    CHECK(troubles(findings) == Texts{fault.check});
    const Finding finding = trouble(findings, fault.check);
    CHECK(finding.grade == fault.grade);
    CHECK_MESSAGE(finding.text.find(fault.says) != std::string::npos, finding.text);
  }
}

TEST_CASE("what just suffices, or does not matter to a job, is not held against its node") {
  NodeFacts node = healthy_node();
  node.files = 544, node.quota = 8, node.shm_size = 128 * kMebi, node.free = 300'000'000;
  CHECK(troubles(findings_of(node)) == Texts{});
  node.shares_memory = false, node.shm_size = 64 * kMebi;
  node.has_peers = false, node.means = {"127.0.1.1"};
  CHECK(troubles(findings_of(node)) == Texts{});
}

}  // namespace
}  // namespace dtrun::cmd::node_findings_test
