// The elements that a dropout zeroes: a function of the seed, the microbatch, the node and the element, never
// of the rank, the time or the number of computations.
#pragma once

#include <cstdint>

#include "worker/core/philox.h"

namespace dtrun::worker {

// Determines a microbatch's random numbers.
struct MicrobatchKey {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;  // of the microbatch in the whole run
  std::int64_t epoch = 0;
  bool operator==(const MicrobatchKey&) const = default;
};

// REQUIRES: node < 65536 and number < 2^48.
inline RandomStream dropout_stream(const MicrobatchKey& key, int node) {
  const auto high = static_cast<std::uint32_t>(key.number >> 32);
  return {key.seed, RandomUse::kDropout, static_cast<std::uint32_t>(key.number),
          (high << 16) | static_cast<std::uint32_t>(node)};
}

// `index`: the element's place in the microbatch.
inline bool keeps(const RandomStream& stream, std::uint64_t index, float probability) {
  return stream.uniform(index) >= probability;
}

}  // namespace dtrun::worker
