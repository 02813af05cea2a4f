#include "worker/core/tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace dtrun::worker::tree_test {
namespace {

TEST_CASE("the ranks' leaves are a partition in rank order, even to within one") {
  for (std::int64_t leaves : {0, 1, 2, 7, 8, 64, 1000}) {
    for (int world = 1; world <= 17; ++world) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const LeafRange range = leaves_of_rank(leaves, rank, world);
        CHECK(range.begin == next);
        CHECK(range.end - range.begin >= leaves / world);
        CHECK(range.end - range.begin <= (leaves + world - 1) / world);
        next = range.end;
      }
      CHECK(next == leaves);
    }
  }
}

TEST_CASE("blocks of a range tile it with the largest nodes that it covers") {
  CHECK(blocks_of(0, 8, 8) == std::vector<Block>{{0, 3}});
  CHECK(blocks_of(2, 5, 8) == std::vector<Block>{{2, 1}, {4, 0}});
  CHECK(blocks_of(5, 8, 8) == std::vector<Block>{{5, 0}, {6, 1}});
  CHECK(blocks_of(3, 3, 8).empty());
}

TEST_CASE("absent leaves count as complete, so the right edge is taken whole") {
  CHECK(blocks_of(0, 5, 5) == std::vector<Block>{{0, 3}});
  CHECK(blocks_of(2, 5, 5) == std::vector<Block>{{2, 1}, {4, 2}});
  CHECK(blocks_of(0, 1, 1) == std::vector<Block>{{0, 0}});
}

TEST_CASE("blocks tile the range for every range of up to 20 leaves") {
  for (std::int64_t leaves = 1; leaves <= 20; ++leaves) {
    for (std::int64_t begin = 0; begin <= leaves; ++begin) {
      for (std::int64_t end = begin; end <= leaves; ++end) {
        std::int64_t at = begin;
        for (const Block& block : blocks_of(begin, end, leaves)) {
          REQUIRE(block.begin == at);
          REQUIRE(within(block, begin, end, leaves));
          const Block parent{block.begin & ~(std::int64_t{1} << block.level), block.level + 1};
          REQUIRE((block.level == tree_height(leaves) || !within(parent, begin, end, leaves)));
          at = std::min(leaves, block.begin + (std::int64_t{1} << block.level));
        }
        REQUIRE(at == end);
      }
    }
  }
}

}  // namespace
}  // namespace dtrun::worker::tree_test
