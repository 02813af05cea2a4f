#include "cmd/doctor/core/cluster_checks.h"

#include <doctest/doctest.h>

#include <functional>

#include "tests/cmd/doctor/core/facts_of_tests.h"

namespace dtrun::doctor {
namespace {

using Texts = std::vector<std::string>;

std::vector<Finding> found(const ClusterFacts& cluster) { return findings_of(cluster_report(cluster)); }

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
  CHECK(troubles(findings_of(report)) == Texts{});
  CHECK(exit_code_of(report, true) == 0);
  CHECK(report.sections.size() == 2);
  CHECK(report.sections[1].note == "4 of 4 came after 1.2 s");
  CHECK(report.sections[1].findings.size() >= 11);
}

TEST_CASE("each fault between nodes is found by its own check, with the node's name") {
  struct Fault {
    const char* check;
    Grade grade;
    const char* says;
    std::function<void(ClusterFacts&)> plant;
  };
  const std::vector<Fault> faults = {
      {"connections", Grade::kFailed, "node3 -> node1: no answer in 2 s; the other way works",
       [](auto& c) { c.paths[3][1] = {.failure = "no answer in 2 s"}; }},
      {"connections", Grade::kFailed, "to node2: refused",
       [](auto& c) {
         for (int i : {0, 1, 3}) c.paths[i][2] = {.failure = "refused"};
       }},
      {"connections", Grade::kFailed, "node1: no answer",
       [](auto& c) { for_all_of(c, 1, [](auto& p) { p = {.failure = "no answer"}; }); }},
      {"large messages", Grade::kFailed, "node3: 64 kB never arrive",
       [](auto& c) { for_all_of(c, 3, [](auto& p) { p = {.large = "64 kB never arrive"}; }); }},
      {"round trip", Grade::kWarning, "node2: 41 ms (p99 60 ms), the others 0.2 ms",
       [](auto& c) {
         for_all_of(c, 2, [](auto& p) {
           p.round_trip_least = 40, p.round_trip = 41, p.round_trip_p99 = 60, p.rate = 500;
         });
       }},
      {"bandwidth", Grade::kWarning, "node0: 94 Mbit/s, the others 9.0 Gbit/s",
       [](auto& c) { for_all_of(c, 0, [](auto& p) { p.rate = 94; }); }},
      {"bandwidth", Grade::kWarning, "node1 -> node2: 94 Mbit/s", [](auto& c) { c.paths[1][2].rate = 94; }},
      {"names", Grade::kWarning, "node1: its address 10.0.0.11 is called printer, on node3",
       [](auto& c) { c.paths[3][1].wrong_name = "its address 10.0.0.11 is called printer"; }},
      {"clocks", Grade::kWarning, "node3: 5.0 s ahead", [](auto& c) { c.paths[0][3].clock_offset = 5; }},
      {"dtrun", Grade::kFailed, "the others have",
       [](auto& c) { c.nodes[2].program.build = "fedcba9876543210"; }},
      {"config", Grade::kFailed, "bad, the others have c0ffee",
       [](auto& c) { c.nodes[2].program.config = "bad"; }},
      {"processors", Grade::kFailed, "SSE2 loops",
       [](auto& c) { c.nodes[2].cpu.fingerprint = "cpu, SSE2 loops"; }},
      {"MTU", Grade::kWarning, "MTU 9000, the others have MTU 1500",
       [](auto& c) { c.nodes[2].route.mtu = 9000; }},
      {"link", Grade::kWarning, "100 Mbit/s, the others have 10.0 Gbit/s",
       [](auto& c) { c.nodes[2].route.speed = 100; }},
      {"kernel", Grade::kWarning, "5.10", [](auto& c) { c.nodes[2].program.kernel = "5.10"; }}};
  for (const Fault& fault : faults) {
    CAPTURE(fault.says);
    ClusterFacts cluster = healthy_cluster(4);
    fault.plant(cluster);
    const std::vector<Finding> findings = found(cluster);
    CHECK(troubles(findings) == Texts{fault.check});
    const Finding finding = trouble(findings, fault.check);
    CHECK(finding.grade == fault.grade);
    CHECK_MESSAGE(finding.text.find(fault.says) != std::string::npos, finding.text);
    if (finding.text.find("node") != 0 && finding.text.find("to node") != 0)
      CHECK(finding.nodes == Texts{"node2"});
  }
}

TEST_CASE("the clock that most agree on is right, also where rank 0's is not") {
  ClusterFacts cluster = healthy_cluster(4);
  for (int to = 1; to < 4; ++to) cluster.paths[0][to].clock_offset = -5;
  CHECK(trouble(found(cluster), "clocks").text == "node0: 5.0 s ahead");
}

TEST_CASE("what several nodes have in common is told once, with their names") {
  ClusterFacts cluster = healthy_cluster(4);
  for (const std::size_t i : {1, 3}) cluster.nodes[i].limits.files = 256;
  CHECK(troubles(found(cluster)) == Texts{"open files"});
  CHECK(trouble(found(cluster), "open files").nodes == Texts{"node1", "node3"});
}

TEST_CASE("a rate that the processor held up blames no network") {
  ClusterFacts cluster = healthy_cluster(4);
  for_all_of(cluster, 2, [](PathFacts& path) { path.rate = 300, path.rate_of_cpu = true; });
  CHECK(troubles(found(cluster)) == Texts{});
  CHECK(doubtful_pairs(cluster, 9).empty());
}

TEST_CASE("bandwidth is named below 0.7 of the others', a round trip from 5 ms beyond theirs on") {
  ClusterFacts cluster = healthy_cluster(4);
  const double usual = 9010;
  for_all_of(cluster, 2, [&](PathFacts& path) { path.rate = 0.75 * usual, path.round_trip_least = 5.5; });
  CHECK(troubles(found(cluster)) == Texts{});
  for_all_of(cluster, 2, [&](PathFacts& path) { path.rate = 0.65 * usual; });
  CHECK(troubles(found(cluster)) == Texts{"bandwidth"});
  for_all_of(cluster, 2, [&](PathFacts& path) { path.round_trip_least = 5.7; });
  CHECK(troubles(found(cluster)) == Texts{"round trip"});
}

TEST_CASE("doubtful pairs are measured again, the worst first, and the better look counts") {
  ClusterFacts cluster = healthy_cluster(4);
  cluster.paths[1][3].rate = 900;
  cluster.paths[2][0].rate = 90;
  CHECK(doubtful_pairs(cluster, 9) == std::vector<Pair>{{0, 2}, {1, 3}});
  CHECK(doubtful_pairs(cluster, 1) == std::vector<Pair>{{0, 2}});
  take_better(cluster.paths[1][3], {.round_trip_least = 0.1, .rate = 9000});
  take_better(cluster.paths[2][0], {.round_trip_least = 7, .rate = 95});
  CHECK(doubtful_pairs(cluster, 9) == std::vector<Pair>{{0, 2}});
  CHECK(cluster.paths[1][3].round_trip_least == doctest::Approx(0.1));
  CHECK(cluster.paths[2][0].round_trip_least == doctest::Approx(0.2));
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
  cluster.nodes[2].name.host = "node0";
  CHECK(names_of(cluster) == Texts{"node0 (rank 0)", "node1", "node0 (rank 2)"});
}

}  // namespace
}  // namespace dtrun::doctor
