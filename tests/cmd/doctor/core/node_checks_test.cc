#include "cmd/doctor/core/node_checks.h"

#include <doctest/doctest.h>

#include <functional>

#include "tests/cmd/doctor/core/facts_of_tests.h"

namespace dtrun::doctor {
namespace {

using Texts = std::vector<std::string>;
constexpr std::int64_t kMega = 1 << 20;

struct Fault {
  const char* check;
  Grade grade;
  const char* says;  // a part of the text
  std::function<void(NodeFacts&)> plant;
};

GpuFacts healthy_gpu() { return {.name = "H200", .memory = 140'000 * kMega}; }

void with_gpus(NodeFacts& node) {
  node.devices = {.gpus = {healthy_gpu(), healthy_gpu()},
                  .gpus_wanted = true,
                  .driver = "580.65",
                  .cuda = "13.0",
                  .nccl = "2.28.9"};
}

TEST_CASE("nothing is said against a node in order") {
  CHECK(troubles(check_node(healthy_node())) == Texts{});
  NodeFacts node = healthy_node();
  with_gpus(node);
  CHECK(troubles(check_node(node)) == Texts{});
  CHECK(check_node(node).size() > 20);
}

TEST_CASE("each fault of a node is found by its own check, which says what and what to do") {
  const std::vector<Fault> faults = {
      {"plan", Grade::kFailed, "no such data", [](auto& n) { n.program.plan_problem = "no such data"; }},
      {"worker", Grade::kFailed, "does not start", [](auto& n) { n.program.worker.clear(); }},
      {"worker", Grade::kFailed, "protocol 5",
       [](auto& n) { n.program.worker = "dtrun-worker 0.1.0, protocol 5"; }},
      {"host name", Grade::kWarning, "127.0.1.1", [](auto& n) { n.name.means = {"127.0.1.1"}; }},
      {"host name", Grade::kWarning, "no address",
       [](auto& n) { n.name.error = "unknown", n.name.means = {}; }},
      {"host name", Grade::kFailed, "another machine", [](auto& n) { n.name.means = {"10.0.0.99"}; }},
      {"route", Grade::kFailed, "unreachable", [](auto& n) { n.route.problem = "Network is unreachable"; }},
      {"route", Grade::kWarning, "had errors", [](auto& n) { n.route.errors = 1000; }},
      {"route", Grade::kWarning, "lost 12 times", [](auto& n) { n.route.carrier_losses = 12; }},
      {"endpoint", Grade::kFailed, "sshd", [](auto& n) { n.name.listener = "node0:29400 is sshd's"; }},
      {"clock", Grade::kWarning, "not synchronised", [](auto& n) { n.limits.clock_synchronised = false; }},
      {"open files", Grade::kWarning, "limit is 256", [](auto& n) { n.limits.files = 256; }},
      {"processes", Grade::kFailed, "20 more", [](auto& n) { n.limits.processes = 20; }},
      {"shared memory", Grade::kWarning, "67 MB",
       [](auto& n) { n.memory.shm_size = n.memory.shm_free = 64 * kMega; }},
      {"shared memory", Grade::kWarning, "nccl-abc", [](auto& n) { n.memory.stale_shm = {"nccl-abc"}; }},
      {"shared memory", Grade::kWarning, "free", [](auto& n) { n.memory.shm_free = 3 * kMega; }},
      {"memory", Grade::kFailed, "not enough memory",
       [](auto& n) { n.memory.shortage = "not enough memory"; }},
      {"memory", Grade::kWarning, "to be had", [](auto& n) { n.memory.available = 100 * kMega; }},
      {"CPUs", Grade::kWarning, "cpu.max gives 1.5 CPUs",
       [](auto& n) { n.cpu.quota = 1.5, n.cpu.quota_by = "cpu.max"; }},
      {"CPUs", Grade::kWarning, "2 workers x 5 lanes", [](auto& n) { n.cpu.lanes = 5; }},
      {"CPU load", Grade::kWarning, "hypervisor", [](auto& n) { n.cpu.steal = 0.1; }},
      {"CPU load", Grade::kWarning, "stress (pid 812)",
       [](auto& n) { n.cpu.others = 3, n.cpu.busiest = "stress (pid 812)"; }},
      {"governor", Grade::kWarning, "powersave",
       [](auto& n) { n.cpu.governor = "powersave", n.cpu.scaling_driver = "acpi-cpufreq"; }},
      {"vector level", Grade::kWarning, "no AVX2", [](auto& n) { n.cpu.vectors = "SSE2"; }},
      {"output_dir", Grade::kFailed, "No space",
       [](auto& n) { n.disk.problem = "cannot write: No space left on device"; }},
      {"output_dir", Grade::kFailed, "three checkpoints", [](auto& n) { n.disk.free = 299'999'999; }},
      {"output_dir", Grade::kWarning, "locks", [](auto& n) { n.disk.lock_problem = "No locks available"; }},
      {"output_dir", Grade::kWarning, "takes 200 s", [](auto& n) { n.disk.write_rate = 5e5; }},
      {"data", Grade::kFailed, "is missing", [](auto& n) { n.disk.data_problem = "train.bin is missing"; }},
      {"data", Grade::kWarning, "5.0 MB/s", [](auto& n) { n.disk.read_rate = 5e6; }},
      {"disks", Grade::kFailed, "md0", [](auto& n) { n.devices.failing = {"md0: 1 of its disks missing"}; }},
      {"stacks", Grade::kWarning, "ptrace_scope is 2", [](auto& n) { n.limits.ptrace_scope = 2; }},
      {"GPUs", Grade::kFailed, "not loaded",
       [](auto& n) { n.devices.gpu_failure = "the NVIDIA driver is not loaded"; }},
      {"Xid errors", Grade::kWarning, "Xid 79", [](auto& n) { n.devices.xids = {"GPU 0000:5e:00: Xid 79"}; }},
      {"RDMA", Grade::kWarning, "DOWN", [](auto& n) { n.devices.rdma_down = {"mlx5_0 port 1 is 1: DOWN"}; }}};
  for (const Fault& fault : faults) {
    CAPTURE(fault.says);
    NodeFacts node = healthy_node();
    fault.plant(node);
    const std::vector<Finding> findings = check_node(node);
    CHECK(troubles(findings) == Texts{fault.check});
    const Finding finding = trouble(findings, fault.check);
    CHECK(finding.grade == fault.grade);
    CHECK_MESSAGE(finding.text.find(fault.says) != std::string::npos, finding.text);
  }
}

TEST_CASE("each fault of a GPU is found by its own check") {
  const std::vector<Fault> faults = {
      {"GPUs", Grade::kFailed, "GPU 1 does not answer", [](auto& n) { n.devices.gpus[1].lost = true; }},
      {"GPUs", Grade::kFailed, "for 3 workers", [](auto& n) { n.cpu.workers = 3, n.cpu.lanes = 1; }},
      {"GPU memory", Grade::kFailed, "2 errors", [](auto& n) { n.devices.gpus[1].ecc_errors = 2; }},
      {"GPU memory", Grade::kFailed, "remapped", [](auto& n) { n.devices.gpus[0].remap_pending = true; }},
      {"GPU memory", Grade::kFailed, "spare rows", [](auto& n) { n.devices.gpus[0].remap_failed = true; }},
      {"GPU memory", Grade::kWarning, "pid 77",
       [](auto& n) { n.devices.gpus[0].memory_used = 9000 * kMega, n.devices.gpus[0].processes = {77}; }},
      {"GPU speed", Grade::kWarning, "heat", [](auto& n) { n.devices.gpus[0].throttled = {"heat"}; }},
      {"GPU speed", Grade::kFailed, "1 of 18 NVLinks",
       [](auto& n) { n.devices.gpus[0].links = 18, n.devices.gpus[0].links_down = 1; }},
      {"GPU speed", Grade::kWarning, "8 of 16 PCIe",
       [](auto& n) { n.devices.gpus[0].pcie_width = 8, n.devices.gpus[0].pcie_width_most = 16; }},
      {"NCCL", Grade::kWarning, "not found", [](auto& n) { n.devices.nccl.clear(); }},
      {"locked memory", Grade::kWarning, "8.4 MB", [](auto& n) { n.limits.locked_memory = 8 * kMega; }}};
  for (const Fault& fault : faults) {
    CAPTURE(fault.says);
    NodeFacts node = healthy_node();
    with_gpus(node);
    fault.plant(node);
    const std::vector<Finding> findings = check_node(node);
    CHECK(troubles(findings) == Texts{fault.check});
    const Finding finding = trouble(findings, fault.check);
    CHECK(finding.grade == fault.grade);
    CHECK_MESSAGE(finding.text.find(fault.says) != std::string::npos, finding.text);
  }
}

TEST_CASE("what does not matter to a job is not held against its node") {
  NodeFacts node = healthy_node();
  node.memory.shm_matters = false;
  node.memory.shm_size = node.memory.shm_free = 64 * kMega;
  node.limits.locked_memory = 8 * kMega;
  node.limits.root = true, node.limits.ptrace_scope = 2;
  node.cpu.governor = "powersave", node.cpu.scaling_driver = "intel_pstate";
  CHECK(troubles(check_node(node)) == Texts{});
}

TEST_CASE("a node's CPU load counts from a quarter of its CPUs on") {
  NodeFacts node = healthy_node();
  node.cpu.others = 1.9;
  CHECK(troubles(check_node(node)) == Texts{});
  node.cpu.others = 2.1;
  CHECK(troubles(check_node(node)) == Texts{"CPU load"});
}

}  // namespace
}  // namespace dtrun::doctor
