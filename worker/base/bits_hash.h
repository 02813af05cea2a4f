// A fast hash of bits: it finds corrupted memory, and tells one data set from another. Not cryptographic.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

namespace dtrun::worker {

// FNV-1a over 32-bit words, eight chains side by side so that the multiplications of different chains
// overlap. Two rows of as many words that differ in one never have the same hash: every step of a chain is a
// bijection. `word_at(i)`: word i.
template <typename WordAt>
std::uint64_t hash_of_words(std::size_t words, const WordAt& word_at) {
  constexpr std::uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  constexpr std::size_t kChains = 8;
  std::array<std::uint64_t, kChains> chains;
  chains.fill(kBasis);
  const std::size_t whole = words / kChains * kChains;
  for (std::size_t i = 0; i < whole; i += kChains) {
    for (std::size_t k = 0; k < kChains; ++k) chains[k] = (chains[k] ^ word_at(i + k)) * kPrime;
  }
  for (std::size_t i = whole; i < words; ++i) chains[i - whole] = (chains[i - whole] ^ word_at(i)) * kPrime;
  std::uint64_t hash = kBasis;
  for (const std::uint64_t chain : chains) hash = (hash ^ chain) * kPrime;
  return hash;
}

inline std::uint64_t bits_hash(std::span<const float> values) {
  return hash_of_words(values.size(), [&](std::size_t i) { return std::bit_cast<std::uint32_t>(values[i]); });
}

// The last word is filled up with zeros; the size does not count.
inline std::uint64_t bits_hash(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  return hash_of_words((bytes.size() + kWord - 1) / kWord, [&](std::size_t i) {
    std::uint32_t word = 0;
    const std::size_t left = bytes.size() - i * kWord;
    std::memcpy(&word, bytes.data() + i * kWord, left < kWord ? left : kWord);
    return word;
  });
}

// Of hashes and sizes.
inline std::uint64_t joint_hash(std::initializer_list<std::uint64_t> numbers) {
  return bits_hash(std::span(reinterpret_cast<const std::uint8_t*>(numbers.begin()), numbers.size() * 8));
}

}  // namespace dtrun::worker
