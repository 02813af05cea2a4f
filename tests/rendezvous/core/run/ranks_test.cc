#include "rendezvous/core/run/ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace dtrun::rendezvous::ranks_test {
namespace {

std::vector<int> group_ranks(const std::vector<RankRequest>& nodes) {
  std::vector<int> ranks;
  for (const Rank& rank : assign_ranks(nodes)) ranks.push_back(rank.group_rank);
  return ranks;
}

using Ranks = std::vector<int>;

}  // namespace

TEST_CASE("without any wish, join order decides") {
  CHECK(group_ranks({{.host = "a"}, {.host = "b"}, {.host = "c"}}) == Ranks{0, 1, 2});
  CHECK(group_ranks({}).empty());
}

TEST_CASE("first ranks add up the workers of the nodes before") {
  const auto ranks = assign_ranks({{.host = "a", .nproc = 2, .node_rank = 1},
                                   {.host = "b", .nproc = 3, .node_rank = 0},
                                   {.host = "c", .node_rank = 2}});
  CHECK(ranks[1].first_rank == 0);
  CHECK(ranks[0].first_rank == 3);
  CHECK(ranks[2].first_rank == 5);
}

TEST_CASE("a given node rank comes before everything else") {
  CHECK(group_ranks({{.host = "a"}, {.host = "b", .node_rank = 0}, {.host = "c"}}) == Ranks{1, 0, 2});
  CHECK(group_ranks({{.host = "a", .previous_rank = 2},
                     {.host = "b", .node_rank = 2, .previous_rank = 0},
                     {.host = "c", .previous_rank = 1}}) == Ranks{0, 2, 1});
}

TEST_CASE("node ranks beyond the number of nodes keep their order") {
  CHECK(group_ranks({{.host = "a", .node_rank = 3}, {.host = "b", .node_rank = 1}}) == Ranks{1, 0});
  CHECK(group_ranks({{.host = "a", .node_rank = 5}, {.host = "b"}, {.host = "c", .node_rank = 0}}) ==
        Ranks{2, 1, 0});
}

TEST_CASE("a node keeps its rank, and a replacement takes the free one") {
  CHECK(
      group_ranks({{.host = "a", .previous_rank = 0}, {.host = "c", .previous_rank = 2}, {.host = "new"}}) ==
      Ranks{0, 2, 1});
}

TEST_CASE("with fewer nodes than before the others close up") {
  CHECK(group_ranks({{.host = "b", .previous_rank = 1}, {.host = "d", .previous_rank = 3}}) == Ranks{1, 0});
  CHECK(group_ranks({{.host = "c", .previous_rank = 2}, {.host = "d", .previous_rank = 3}}) == Ranks{0, 1});
}

TEST_CASE("two nodes that had the same rank don't collide") {
  CHECK(group_ranks({{.host = "a", .previous_rank = 0}, {.host = "b", .previous_rank = 0}}) == Ranks{0, 1});
}

TEST_CASE(
    "nodes of one place in the network are neighbours, in join order, and later ones take what is free") {
  CHECK(group_ranks({{.host = "a", .topology = "pod2.rack1"},
                     {.host = "b", .topology = "pod1.rack2"},
                     {.host = "c", .topology = "pod2.rack1"},
                     {.host = "d", .topology = "pod1.rack1"},
                     {.host = "e"}}) == Ranks{3, 2, 4, 1, 0});
  // A host's agents stay together, and nobody who had a rank moves.
  CHECK(group_ranks({{.host = "a", .topology = "2"}, {.host = "b", .topology = "1"}, {.host = "a"}}) ==
        Ranks{1, 2, 0});
  CHECK(group_ranks({{.host = "a", .previous_rank = 0, .topology = "2"},
                     {.host = "b", .previous_rank = 2, .topology = "1"},
                     {.host = "new", .topology = "1"}}) == Ranks{0, 2, 1});
  CHECK(group_ranks({{.host = "a", .node_rank = 0, .topology = "2"}, {.host = "b", .topology = "1"}}) ==
        Ranks{0, 1});
}

TEST_CASE("at first nodes have the ranks that their cluster counts, later who has one keeps it") {
  CHECK(group_ranks({{.host = "p2", .preferred_rank = 2},
                     {.host = "p0", .preferred_rank = 0},
                     {.host = "p1", .preferred_rank = 1}}) == Ranks{2, 0, 1});
  // Pod 0 is not there yet; a node that nobody counts comes last; a number that two have is no claim.
  CHECK(group_ranks(
            {{.host = "x"}, {.host = "p3", .preferred_rank = 3}, {.host = "p1", .preferred_rank = 1}}) ==
        Ranks{2, 1, 0});
  CHECK(group_ranks({{.host = "p1", .preferred_rank = 1}, {.host = "p1'", .preferred_rank = 1}}) ==
        Ranks{0, 1});
  // Pods 0 and 1 were replaced; pod 0 was, while pod 2 has its rank.
  CHECK(group_ranks({{.host = "p2", .previous_rank = 2, .preferred_rank = 2},
                     {.host = "p1", .preferred_rank = 1},
                     {.host = "p0", .preferred_rank = 0}}) == Ranks{2, 1, 0});
  CHECK(group_ranks({{.host = "p2", .previous_rank = 0, .preferred_rank = 2},
                     {.host = "p0", .preferred_rank = 0}}) == Ranks{0, 1});
  // Requested ranks, and the network, count more.
  CHECK(group_ranks({{.host = "p0", .preferred_rank = 0},
                     {.host = "p1", .node_rank = 0, .preferred_rank = 1}}) == Ranks{1, 0});
  CHECK(group_ranks({{.host = "p0", .topology = "2", .preferred_rank = 0},
                     {.host = "p1", .topology = "1", .preferred_rank = 1}}) == Ranks{1, 0});
}

TEST_CASE("agents of one host are neighbours") {
  CHECK(group_ranks({{.host = "a"}, {.host = "b"}, {.host = "a"}, {.host = "b"}}) == Ranks{0, 2, 1, 3});
}

TEST_CASE("agents of a host join the one of them that has a given rank") {
  CHECK(group_ranks({{.host = "a"}, {.host = "b"}, {.host = "a", .node_rank = 2}}) == Ranks{1, 0, 2});
  CHECK(group_ranks({{.host = "b"}, {.host = "a"}, {.host = "c"}, {.host = "a", .node_rank = 1}}) ==
        Ranks{2, 0, 3, 1});
}

TEST_CASE("any wishes give every node a rank of its own, and hosts without given ranks stay together") {
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::vector<RankRequest> nodes(1 + random() % 9);
    std::vector<int> node_ranks(12);
    for (int i = 0; i < 12; ++i) node_ranks[static_cast<std::size_t>(i)] = i;
    std::shuffle(node_ranks.begin(), node_ranks.end(), random);
    const bool given = round % 2 == 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].host = std::string(1, static_cast<char>('a' + random() % 4));
      nodes[i].nproc = 1 + static_cast<int>(random() % 3);
      if (given && random() % 3 == 0) nodes[i].node_rank = node_ranks[i];
      if (random() % 2 == 0) nodes[i].previous_rank = static_cast<int>(random() % 12);
    }
    const std::vector<Rank> ranks = assign_ranks(nodes);
    std::vector<int> node_at(nodes.size(), -1);
    for (std::size_t i = 0; i < nodes.size(); ++i)
      node_at.at(static_cast<std::size_t>(ranks[i].group_rank)) = static_cast<int>(i);
    int first = 0;
    std::map<std::string, int> last;
    for (int slot = 0; slot < static_cast<int>(nodes.size()); ++slot) {
      const int node = node_at[static_cast<std::size_t>(slot)];
      REQUIRE(node >= 0);
      const RankRequest& request = nodes[static_cast<std::size_t>(node)];
      CHECK(ranks[static_cast<std::size_t>(node)].first_rank == first);
      first += request.nproc;
      if (!given && last.contains(request.host)) CHECK(last[request.host] == slot - 1);
      last[request.host] = slot;
    }
  }
}

}  // namespace dtrun::rendezvous::ranks_test
