// A fast hash of floats as bits, to find corrupted memory. Not cryptographic.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace dtrun::worker {

// FNV-1a over 32-bit words, eight chains side by side so that the multiplications of different chains
// overlap. Two vectors that differ in one word never have the same hash: every step of a chain is a
// bijection.
inline std::uint64_t bits_hash(std::span<const float> values) {
  constexpr std::uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  constexpr std::size_t kChains = 8;
  std::array<std::uint64_t, kChains> chains;
  chains.fill(kBasis);
  const std::size_t whole = values.size() / kChains * kChains;
  for (std::size_t i = 0; i < whole; i += kChains) {
    for (std::size_t k = 0; k < kChains; ++k)
      chains[k] = (chains[k] ^ std::bit_cast<std::uint32_t>(values[i + k])) * kPrime;
  }
  for (std::size_t i = whole; i < values.size(); ++i)
    chains[i - whole] = (chains[i - whole] ^ std::bit_cast<std::uint32_t>(values[i])) * kPrime;
  std::uint64_t hash = kBasis;
  for (const std::uint64_t chain : chains) hash = (hash ^ chain) * kPrime;
  return hash;
}

}  // namespace dtrun::worker
