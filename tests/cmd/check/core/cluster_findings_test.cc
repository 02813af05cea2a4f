#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "cmd/check/core/findings.h"
#include "tests/cmd/check/core/facts_of_tests.h"

namespace dtrun::cmd::cluster_findings_test {
namespace {

using Texts = std::vector<std::string>;

std::vector<Finding> found(const ClusterFacts& cluster) {
  std::vector<Finding> all;
  for (const ReportSection& section : cluster_report(cluster).sections)
    std::ranges::copy(section.findings, std::back_inserter(all));
  return all;
}

// Both ways between one node and all others.
void for_all_of(ClusterFacts& cluster, std::size_t node, const std::function<void(PathFacts&)>& change) {
  for (std::size_t other = 0; other < cluster.nodes.size(); ++other) {
    if (other == node) continue;
    change(cluster.paths[node][other]);
    change(cluster.paths[other][node]);
  }
}

TEST_CASE("nothing is said against nodes in order, and every check is made") {
  const Report report = cluster_report(healthy_cluster(4));
  CHECK(troubles(found(healthy_cluster(4))) == Texts{});
  CHECK(exit_code_of(report, true) == 0);
  CHECK(report.sections.size() == 2);
  CHECK(report.sections[1].note == "4 of 4 came");
  CHECK(report.sections[1].findings.size() == 9);
}

TEST_CASE("each fault between nodes is found by its own check, with the node's name") {
  struct ClusterFault {
    const char* check;
    Grade grade;
    const char* says;
    std::function<void(ClusterFacts&)> plant;
  };
  const std::vector<ClusterFault> faults = {
      {"connections", Grade::kFailed, "node3 -> node1: no answer; the other way works",
       [](auto& c) { c.paths[3][1] = {.failure = "no answer"}; }},
      {"connections", Grade::kFailed, "node2: refused",
       [](auto& c) {
         for (int i : {0, 1, 3}) c.paths[i][2] = {.failure = "refused"};
       }},
      {"connections", Grade::kFailed, "node1: no answer",
       [](auto& c) { for_all_of(c, 1, [](auto& p) { p = {.failure = "no answer"}; }); }},
      {"large messages", Grade::kFailed, "node3: 64 kB never arrive",
       [](auto& c) { for_all_of(c, 3, [](auto& p) { p = {.large_fails = true}; }); }},
      {"round trip", Grade::kWarning, "node2: 40 ms at best, the others 0.2 ms",
       [](auto& c) { for_all_of(c, 2, [](auto& p) { p.round_trip = 40, p.rate = 500; }); }},
      {"bandwidth", Grade::kWarning, "node0: 94 Mbit/s, the others 9.0 Gbit/s",
       [](auto& c) { for_all_of(c, 0, [](auto& p) { p.rate = 94; }); }},
      {"bandwidth", Grade::kWarning, "node1 -> node2: 94 Mbit/s", [](auto& c) { c.paths[1][2].rate = 94; }},
      {"names", Grade::kWarning, "node1: node1 means 10.0.0.99, on node3",
       [](auto& c) { c.paths[3][1].wrong_name = "node1 means 10.0.0.99"; }},
      {"dtrun", Grade::kFailed, "the others have", [](auto& c) { c.nodes[2].dtrun = "dtrun 0.0.9"; }},
      {"config", Grade::kFailed, "bad, the others have c0ffee", [](auto& c) { c.nodes[2].config = "bad"; }},
      {"processors", Grade::kFailed, "SSE2 loops", [](auto& c) { c.nodes[2].processor = "cpu, SSE2 loops"; }},
      {"MTU", Grade::kWarning, "MTU 9000, the others have MTU 1500", [](auto& c) { c.nodes[2].mtu = 9000; }}};
  for (const ClusterFault& fault : faults) {
    CAPTURE(fault.says);
    ClusterFacts cluster = healthy_cluster(4);
    fault.plant(cluster);
    const std::vector<Finding> findings = found(cluster);
    CHECK(troubles(findings) == Texts{fault.check});
    const Finding finding = trouble(findings, fault.check);
    CHECK(finding.grade == fault.grade);
    CHECK_MESSAGE(finding.text.find(fault.says) != std::string::npos, finding.text);
    if (!finding.text.starts_with("node")) CHECK(finding.nodes == Texts{"node2"});
  }
}

TEST_CASE("what several nodes have in common is told once, with their names") {
  ClusterFacts cluster = healthy_cluster(4);
  for (const std::size_t i : {1, 3}) cluster.nodes[i].files = 256;
  CHECK(troubles(found(cluster)) == Texts{"open files"});
  CHECK(trouble(found(cluster), "open files").nodes == Texts{"node1", "node3"});
}

TEST_CASE("a rate that the processor held up blames no network") {
  ClusterFacts cluster = healthy_cluster(4);
  for_all_of(cluster, 2, [](PathFacts& path) { path.rate = 300, path.rate_of_cpu = true; });
  CHECK(troubles(found(cluster)) == Texts{});
}

TEST_CASE("another look deserve the slow paths that would be named, and two of which nothing is known") {
  const PathFacts usual{.rate = 8000}, slow{.rate = 5000}, slower{.rate = 94}, none{.rate = -1},
      held_up{.rate = 90, .rate_of_cpu = true};
  const std::vector<double> best{8000, -1, 94, 7900, 8200};
  const std::vector<PathFacts> paths{usual, slow, held_up, slower, none, held_up, held_up};
  CHECK(slow_paths(paths, best) == std::vector<int>{3, 1, 2, 5});
  CHECK(slow_paths(paths, {-1, -1}).empty());
  CHECK(slow_paths(paths, {94, 94, 94}).empty());
  CHECK(slow_paths(std::vector<PathFacts>(20, slow), best).size() == 8);
}

TEST_CASE("bandwidth is named below 0.7 of the others', a round trip from 5 ms beyond theirs on") {
  ClusterFacts cluster = healthy_cluster(4);
  const double usual = 9010;
  for_all_of(cluster, 2, [&](PathFacts& path) { path.rate = 0.75 * usual, path.round_trip = 5.5; });
  CHECK(troubles(found(cluster)) == Texts{});
  for_all_of(cluster, 2, [&](PathFacts& path) { path.rate = 0.65 * usual; });
  CHECK(troubles(found(cluster)) == Texts{"bandwidth"});
  for_all_of(cluster, 2, [&](PathFacts& path) { path.round_trip = 5.7; });
  CHECK(troubles(found(cluster)) == Texts{"round trip"});
}

TEST_CASE("nodes that did not come are an error of their own") {
  ClusterFacts cluster = healthy_cluster(3);
  cluster.wanted = 4;
  const Report report = cluster_report(cluster);
  CHECK(report.missing == 1);
  CHECK(exit_code_of(report, false) == 69);
}

TEST_CASE("agents on one host are told apart") {
  ClusterFacts cluster = healthy_cluster(3);
  cluster.nodes[2].host = "node0";
  CHECK(names_of(cluster.nodes) == Texts{"node0 (rank 0)", "node1", "node0 (rank 2)"});
}

}  // namespace
}  // namespace dtrun::cmd::cluster_findings_test
