#include "worker/tokenizer/merge.h"

#include <algorithm>
#include <bit>

namespace dtrun::worker {
namespace {

// Up to this many ids, looking at all pairs again and again is faster than a heap.
constexpr std::size_t kShortWord = 48;
constexpr std::uint32_t kNobody = UINT32_MAX;

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2)), mask_(slots_.size() - 1) {
  shift_ = 64 - std::countr_zero(slots_.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = key_of(merges[rank].left, merges[rank].right);
    std::size_t slot = slot_of(key);
    while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask_;
    slots_[slot] = {.key = key,
                    .entry = {.rank = static_cast<std::int32_t>(rank), .result = merges[rank].result}};
  }
}

void Merger::merge(std::vector<std::int32_t>& ids) {
  if (ids.size() < 2) return;
  if (ids.size() <= kShortWord)
    merge_short(ids);
  else
    merge_long(ids);
}

void Merger::merge_short(std::vector<std::int32_t>& ids) {
  std::size_t size = ids.size();
  pairs_.resize(size - 1);
  for (std::size_t i = 0; i + 1 < size; ++i) pairs_[i] = table_.find(ids[i], ids[i + 1]);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i)
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    if (pairs_[best].rank == MergeTable::kNever) break;
    ids[best] = pairs_[best].result;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              ids.begin() + static_cast<std::ptrdiff_t>(size),
              ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(pairs_.begin() + static_cast<std::ptrdiff_t>(best) + 1,
              pairs_.begin() + static_cast<std::ptrdiff_t>(size) - 1,
              pairs_.begin() + static_cast<std::ptrdiff_t>(best));
    --size;
    if (best > 0) pairs_[best - 1] = table_.find(ids[best - 1], ids[best]);
    if (best + 1 < size) pairs_[best] = table_.find(ids[best], ids[best + 1]);
  }
  ids.resize(size);
}

void Merger::merge_long(std::vector<std::int32_t>& ids) {
  const auto size = static_cast<std::uint32_t>(ids.size());
  links_.resize(size);
  heap_.clear();
  const auto consider = [&](std::uint32_t at) {
    const std::int32_t rank = table_.find(ids[at], ids[links_[at].behind]).rank;
    if (rank != MergeTable::kNever) heap_.push_back({.rank = rank, .at = at});
    return rank != MergeTable::kNever;
  };
  for (std::uint32_t i = 0; i < size; ++i)
    links_[i] = {.before = i > 0 ? i - 1 : kNobody, .behind = i + 1 < size ? i + 1 : kNobody};
  for (std::uint32_t i = 0; i + 1 < size; ++i) consider(i);
  std::make_heap(heap_.begin(), heap_.end());
  constexpr std::int32_t kGone = -1;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const MergeCandidate best = heap_.back();
    heap_.pop_back();
    const std::uint32_t at = best.at, gone = links_[at].behind;
    if (ids[at] == kGone || gone == kNobody) continue;
    const MergeTable::PairMerge entry = table_.find(ids[at], ids[gone]);
    if (entry.rank != best.rank) continue;  // an earlier merge changed one of the two
    ids[at] = entry.result;
    ids[gone] = kGone;
    const auto [before, behind] = PairLinks{links_[at].before, links_[gone].behind};
    links_[at].behind = behind;
    if (behind != kNobody) links_[behind].before = at;
    if (before != kNobody && consider(before)) std::push_heap(heap_.begin(), heap_.end());
    if (behind != kNobody && consider(at)) std::push_heap(heap_.begin(), heap_.end());
  }
  std::erase(ids, kGone);
}

}  // namespace dtrun::worker
