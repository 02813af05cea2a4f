// Sums over groups of leaves: those that ranks make together of their blocks, against those of one rank that
// has all leaves, for every number of ranks and size of a group.
#include "worker/core/group_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dtrun::group_sum_test {

using namespace dtrun::worker;

namespace {

constexpr std::size_t kWidth = 3;
using Vectors = std::vector<std::vector<double>>;

// Values whose sum depends on the order.
Vectors leaves_of(std::int64_t leaves) {
  Vectors all(static_cast<std::size_t>(leaves), std::vector<double>(kWidth));
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
    for (std::size_t i = 0; i < kWidth; ++i)
      all[leaf][i] = std::ldexp(1.0 + static_cast<double>(leaf) / 7, static_cast<int>(leaf * 13 % 40));
  return all;
}

Vectors exchanged(std::int64_t leaves, std::int64_t group, int world) {
  Vectors all = leaves_of(leaves);
  const auto own_of = [&](int rank) {
    const LeafRange range = leaves_of_rank(leaves, rank, world);
    return std::vector<std::span<double>>(all.begin() + range.begin, all.begin() + range.end);
  };
  const std::size_t record = GroupSum(leaves, group, 0, world).record() * kWidth;
  std::vector<double> records(record * world, NAN);
  for (int rank = 0; rank < world; ++rank)
    GroupSum(leaves, group, rank, world)
        .add_up(own_of(rank), std::span(records).subspan(rank * record, record));
  for (int rank = 0; rank < world; ++rank)
    GroupSum(leaves, group, rank, world).give_out(records, own_of(rank));
  return all;
}

}  // namespace

TEST_CASE("each leaf gets the sum of its group, with the same bits for any number of ranks") {
  for (const std::int64_t leaves : {1, 2, 3, 5, 8, 13, 16})
    for (const std::int64_t group : {0, 1, 2, 4, 8, 32}) {
      CAPTURE(leaves);
      CAPTURE(group);
      const Vectors alone = exchanged(leaves, group, 1);
      for (int world = 2; world <= 17; ++world) {
        CAPTURE(world);
        CHECK(exchanged(leaves, group, world) == alone);
      }
    }
}

TEST_CASE("a group is an aligned power of two of leaves, the last one what is left") {
  const Vectors before = leaves_of(7), after = exchanged(7, 4, 3);
  for (std::int64_t leaf = 0; leaf < 7; ++leaf)
    for (std::size_t i = 0; i < kWidth; ++i) {
      const double expected = leaf < 4 ? (before[0][i] + before[1][i]) + (before[2][i] + before[3][i])
                                       : (before[4][i] + before[5][i]) + before[6][i];
      CHECK(after[leaf][i] == expected);
    }
  CHECK(exchanged(5, 1, 2) == leaves_of(5));
}

}  // namespace dtrun::group_sum_test
