// Philox4x32-10: a counter-based random number generator. Any number of the stream can be computed alone, so
// random numbers depend on their purpose and never on the rank or the time of their computation.
// From Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace dtrun::worker {

// The purpose of a stream; part of the counter, so streams never overlap.
enum class RandomUse : std::uint32_t {
  kInit = 1,
  kShuffle = 2,
  kDropout = 3,
  kData = 4,
  kSample = 5,
  kAugment = 6
};

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// The stream of (seed, use, a, b): numbers 0, 1, 2, … by index.
class RandomStream {
 public:
  // a and b tell the streams of one use apart, e.g. the epoch; or step*microbatches+microbatch and the layer.
  RandomStream(std::uint64_t seed, RandomUse use, std::uint32_t a, std::uint32_t b);

  // Number 4 * i + k of the stream is word k of Philox of the counter (i, a, b, use) under this key. For
  // loops that compute many numbers side by side.
  struct Words {
    std::uint32_t key[2];
    std::uint32_t a, b, use;
  };
  Words words() const { return {{key_[0], key_[1]}, a_, b_, use_}; }

  // REQUIRES: index < 2^34 (four numbers come from one 32-bit counter word).
  std::uint32_t bits(std::uint64_t index) const;
  // Uniform in [0, 1), 24 bits.
  float uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t a_, b_, use_;  // the counter is (index / 4, a, b, use)
};

}  // namespace dtrun::worker
