// The generator against its published vectors, and the streams' layout.
#include "worker/core/philox.h"

#include <doctest/doctest.h>

#include <set>

namespace dtrun::philox_test {

using namespace dtrun::worker;
using Block = std::array<std::uint32_t, 4>;

TEST_CASE("philox4x32-10 gives the known answers of Random123") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a stream's numbers are philox blocks, four at a time") {
  const RandomStream stream(0x0123456789abcdefull, RandomUse::kShuffle, 7, 9);
  const Block block = philox4x32({2, 7, 9, 2}, {0x89abcdef, 0x01234567});
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(stream.bits(8 + i) == block[i]);
}

TEST_CASE("streams that differ in seed, use, a or b have different numbers") {
  std::set<std::uint32_t> firsts;
  for (std::uint64_t seed : {1ull, 2ull, 1ull << 32})
    for (RandomUse use : {RandomUse::kInit, RandomUse::kShuffle, RandomUse::kDropout})
      for (std::uint32_t a : {0u, 1u})
        for (std::uint32_t b : {0u, 1u}) firsts.insert(RandomStream(seed, use, a, b).bits(0));
  CHECK(firsts.size() == 36);
}

TEST_CASE("uniform numbers lie in [0, 1) and fill it evenly") {
  const RandomStream stream(42, RandomUse::kInit, 0, 0);
  constexpr int kNumbers = 100000;
  double sum = 0;
  float smallest = 1, largest = 0;
  for (int i = 0; i < kNumbers; ++i) {
    const float u = stream.uniform(i);
    sum += u;
    smallest = std::min(smallest, u);
    largest = std::max(largest, u);
  }
  CHECK(smallest >= 0.0f);
  CHECK(largest < 1.0f);
  CHECK(smallest < 0.001f);
  CHECK(largest > 0.999f);
  CHECK(sum / kNumbers == doctest::Approx(0.5).epsilon(0.01));
}

}  // namespace dtrun::philox_test
