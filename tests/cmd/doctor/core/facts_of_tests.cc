#include "tests/cmd/doctor/core/facts_of_tests.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrun::doctor {

NodeFacts healthy_node(int number) {
  const std::string name = "node" + std::to_string(number), address = "10.0.0.1" + std::to_string(number);
  NodeFacts node;
  node.program = {.version = "dtrun 0.1.0",
                  .build = "0123456789abcdef",
                  .worker_path = "/opt/dtrun-worker",
                  .worker = "dtrun-worker 0.1.0, protocol 6",
                  .worker_wanted = "dtrun-worker 0.1.0, protocol 6",
                  .config = "c0ffee",
                  .kernel = "6.1.0"};
  node.name = {.host = name,
               .means = {address},
               .own = {address, "127.0.0.1"},
               .endpoint = "node0:29400",
               .listener = "nobody",
               .has_peers = true};
  node.route = {
      .address = address, .interface = "eth0", .mtu = 1500, .speed = 10000, .errors = 0, .packets = 100'000};
  node.limits = {.files = 65536,
                 .most_files = 65536,
                 .files_wanted = 544,
                 .processes = 30'000,
                 .processes_wanted = 80,
                 .locked_memory = -1};
  node.memory = {.shm_size = std::int64_t{8} << 30,
                 .shm_free = std::int64_t{8} << 30,
                 .available = std::int64_t{16} << 30,
                 .available_by = "MemAvailable in /proc/meminfo"};
  node.cpu = {.allowed = 8, .workers = 2, .lanes = 4, .vectors = "AVX2", .fingerprint = "cpu, AVX2 loops"};
  node.disk = {.output_dir = "runs/a",
               .free = std::int64_t{50} << 30,
               .checkpoint = 100'000'000,
               .write_rate = 2e8,
               .data = "/data",
               .read_rate = 3e8};
  return node;
}

ClusterFacts healthy_cluster(int nodes) {
  ClusterFacts cluster{.wanted = nodes, .waited = 1.2};
  for (int i = 0; i < nodes; ++i) cluster.nodes.push_back(healthy_node(i));
  for (int from = 0; from < nodes; ++from) {
    cluster.paths.emplace_back(nodes);
    for (int to = 0; to < nodes; ++to)
      if (from != to)
        cluster.paths.back()[static_cast<std::size_t>(to)] = {.pmtu = 1500,
                                                              .round_trip = 0.3,
                                                              .round_trip_p99 = 0.9,
                                                              .round_trip_least = 0.2,
                                                              .rate = 9000 + 10.0 * from + to};
  }
  return cluster;
}

std::vector<std::string> troubles(const std::vector<Finding>& findings) {
  std::vector<std::string> checks;
  for (const Finding& finding : findings)
    if (finding.grade != Grade::kPassed) checks.push_back(finding.check);
  return checks;
}

std::vector<Finding> findings_of(const Report& report) {
  std::vector<Finding> all;
  for (const Section& section : report.sections) std::ranges::copy(section.findings, std::back_inserter(all));
  return all;
}

Finding trouble(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::ranges::find_if(
      findings, [&](const Finding& one) { return one.check == check && one.grade != Grade::kPassed; });
  REQUIRE_MESSAGE(found != findings.end(), check);
  CHECK(!found->remedy.empty());
  return *found;
}

}  // namespace dtrun::doctor
