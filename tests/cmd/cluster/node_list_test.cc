#include "cmd/cluster/node_list.h"

#include <doctest/doctest.h>

namespace dtrun::node_list_test {

using namespace dtrun::cmd;

namespace {

std::string joined(const std::string& list) {
  const auto nodes = parse_node_list(list);
  if (!nodes.ok()) return "refused: " + nodes.status().message();
  std::string text;
  for (const auto& node : nodes.value()) text += (text.empty() ? "" : " ") + node;
  return text;
}

}  // namespace

// As `scontrol show hostnames` of Slurm 22.05 prints them; tests/e2e/slurm compares a million.
TEST_CASE("lists are what Slurm's own tool makes of them") {
  CHECK(joined("n1") == "n1");
  CHECK(joined("n[1-3,007-010],rack[1-2]n[0-3]") ==
        "n1 n2 n3 n007 n008 n009 n010 rack1n0 rack1n1 rack1n2 rack1n3 rack2n0 rack2n1 rack2n2 rack2n3");
  CHECK(joined("n3,n1,n2,n1") == "n3 n1 n2 n1");
  CHECK(joined("a[9-11]") == "a9 a10 a11");
  CHECK(joined("a[09-11]") == "a09 a10 a11");
  CHECK(joined("a[001-2]") == "a001 a002");
  CHECK(joined("a[1-02]") == "a1 a2");
  CHECK(joined("n[99-101]") == "n99 n100 n101");
  CHECK(joined("n[1-2,2-3]") == "n1 n2 n2 n3");
  CHECK(joined("r[1-2][3-4]") == "r13 r14 r23 r24");
  CHECK(joined("a[1-2]x[5],zz,b") == "a1x5 a2x5 zz b");
  CHECK(joined("nodeA,nodeB[001,003]") == "nodeA nodeB001 nodeB003");
  CHECK(joined("h[20261123000009-20261123000010]") == "h20261123000009 h20261123000010");
  CHECK(joined("h[0001143088]") == "h0001143088");
  CHECK(joined("ip-10-0-0-1") == "ip-10-0-0-1");
}

TEST_CASE("what is no list is refused, in one short line") {
  for (const char* list : {"",        ",",      "n1,",      ",n1",        "n1,,n2",          "n[",
                           "n]",      "n[1",    "n[]",      "n[a]",       "n[3-1]",          "n[1--2]",
                           "n[1-2]]", "n[1,]",  "n[[1-2]]", "n[1-99999]", "n[1-300][1-300]", "n[-1]",
                           "n[1-]",   "n[0x1]", "n[ 1]"}) {
    const auto text = joined(list);
    CHECK_MESSAGE(text.starts_with("refused: "), list, " -> ", text);
    CHECK(text.size() < 200);
  }
  CHECK(joined("n[1-40000],m[1-40000]").find("more than 65536 nodes") != std::string::npos);
  CHECK(parse_node_list("n[1-65536]").ok());
}

TEST_CASE("counts of nodes are numbers, and repetitions in brackets") {
  CHECK(parse_counts("1").value() == std::vector<int>{1});
  CHECK(parse_counts("2(x3),1").value() == std::vector<int>{2, 2, 2, 1});
  CHECK(parse_counts("64(x2),0,3(x1)").value() == std::vector<int>{64, 64, 0, 3});
  CHECK(parse_counts("1(x65536)").value().size() == 65536);
  for (const char* list :
       {"", ",", "1,", "x", "-1", "+1", "1(x", "1(x)", "1(x2", "1(x23", "1(2)", "1(x-2)", "1x2", " 1",
        "99999999999999999999", "1(x65537)", "1(x65536),1", "16385", "1(x2)(x2)"})
    CHECK_MESSAGE(!parse_counts(list).ok(), list);
}

}  // namespace dtrun::node_list_test
