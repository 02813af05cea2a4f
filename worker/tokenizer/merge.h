// Byte-pair encoding of one word: among all neighbours that the table merges, the pair that is first in the
// table is merged first, among equal pairs the left one, until no pair can be merged. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/tokenizer/spec.h"

namespace dtrun::worker {

// The merges by their pairs.
class MergeTable {
 public:
  // The later of two equal pairs counts. REQUIRES: fewer than 2^31 merges.
  explicit MergeTable(std::span<const Merge> merges);

  static constexpr std::int32_t kNever = INT32_MAX;  // the rank of a pair that is not merged
  struct PairMerge {
    std::int32_t rank = kNever, result = 0;
  };
  PairMerge find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_)
      if (slots_[slot].key == key || slots_[slot].key == kFree) return slots_[slot].entry;
  }

 private:
  static constexpr std::uint64_t kFree = UINT64_MAX;
  struct TableSlot {
    std::uint64_t key = kFree;
    PairMerge entry;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> shift_);
  }

  std::vector<TableSlot> slots_;  // a power of two, at most half of them taken
  std::size_t mask_ = 0;
  int shift_ = 0;
};

// Merges within `ids` and shortens it. Time: about n log n for n ids. One for each thread.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}
  void merge(std::vector<std::int32_t>& ids);

 private:
  // A pair that can be merged, or could when it was found.
  struct MergeCandidate {
    std::int32_t rank;
    std::uint32_t at;  // its left part
    // The pair to merge next is the greatest, so that it is the top of a heap.
    bool operator<(const MergeCandidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct PairLinks {
    std::uint32_t before, behind;
  };

  void merge_short(std::vector<std::int32_t>& ids);
  void merge_long(std::vector<std::int32_t>& ids);

  const MergeTable& table_;
  std::vector<MergeTable::PairMerge> pairs_;  // short words: the merge of ids i and i + 1
  std::vector<MergeCandidate> heap_;          // long words
  std::vector<PairLinks> links_;
};

}  // namespace dtrun::worker
