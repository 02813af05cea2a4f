#include "worker/device/cuda/kernels/token_runs.h"

#include <algorithm>

namespace dtrun::worker::cuda {

TokenSorter::Pieces TokenSorter::sort(std::span<const std::int32_t> tokens, std::int32_t* order,
                                      std::int32_t* begins, std::int32_t* ids) {
  constexpr auto kMost = static_cast<std::int32_t>(kRowsAPiece);
  std::fill(rows_.begin(), rows_.end(), 0);
  for (const std::int32_t token : tokens) ++rows_[token];
  std::int32_t begin = 0;
  const auto place = [&](bool cut) {
    for (std::size_t token = 0; token < rows_.size(); ++token) {
      if ((rows_[token] > kMost) != cut) continue;
      next_[token] = begin;
      for (std::int32_t left = rows_[token]; left > 0; left -= kMost) {
        *ids++ = static_cast<std::int32_t>(token);
        *begins++ = begin;
        begin += std::min(left, kMost);
      }
    }
  };
  const std::int32_t* const first = ids;
  place(true);
  const auto cut = static_cast<std::int32_t>(ids - first);
  place(false);
  *begins = begin;
  for (std::size_t row = 0; row < tokens.size(); ++row)
    order[next_[tokens[row]]++] = static_cast<std::int32_t>(row);
  return {.all = static_cast<std::int32_t>(ids - first), .cut = cut};
}

}  // namespace dtrun::worker::cuda
