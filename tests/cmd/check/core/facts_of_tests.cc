#include "tests/cmd/check/core/facts_of_tests.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrun::cmd {

NodeFacts healthy_node(int number) {
  const std::string name = "node" + std::to_string(number), address = "10.0.0.1" + std::to_string(number);
  return {.dtrun = "dtrun 0.1.0 build 0123456789ab",
          .config = "c0ffee",
          .processor = "cpu, AVX2 loops",
          .worker_path = "/opt/dtrun-worker",
          .worker = "dtrun-worker 0.1.0, protocol 6",
          .worker_wanted = "dtrun-worker 0.1.0, protocol 6",
          .host = name,
          .means = {address},
          .own = {address, "127.0.0.1"},
          .has_peers = true,
          .endpoint = "node0:29400",
          .listener = "nobody",
          .address = address,
          .interface = "eth0",
          .mtu = 1500,
          .files = 65536,
          .files_wanted = 544,
          .shm_size = std::int64_t{8} << 30,
          .cpus = 8,
          .workers = 2,
          .lanes = 4,
          .output_dir = "runs/a",
          .free = std::int64_t{50} << 30,
          .checkpoint = 100'000'000};
}

ClusterFacts healthy_cluster(int nodes) {
  ClusterFacts cluster{.wanted = nodes};
  for (int i = 0; i < nodes; ++i) cluster.nodes.push_back(healthy_node(i));
  for (int from = 0; from < nodes; ++from) {
    cluster.paths.emplace_back(nodes);
    for (int to = 0; to < nodes; ++to)
      if (from != to)
        cluster.paths.back()[static_cast<std::size_t>(to)] = {.round_trip = 0.2,
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

Finding trouble(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::ranges::find_if(
      findings, [&](const Finding& one) { return one.check == check && one.grade != Grade::kPassed; });
  REQUIRE_MESSAGE(found != findings.end(), check);
  CHECK(!found->remedy.empty());
  return *found;
}

}  // namespace dtrun::cmd
