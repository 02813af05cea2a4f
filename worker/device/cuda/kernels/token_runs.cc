#include "worker/device/cuda/kernels/token_runs.h"

#include <algorithm>
#include <utility>

namespace dtrun::worker::cuda {

std::size_t TokenSorter::sort(std::span<const std::int32_t> tokens, std::int32_t* order, std::int32_t* begins,
                              std::int32_t* ids) {
  std::fill(ends_.begin(), ends_.end(), 0);
  for (const std::int32_t token : tokens) ++ends_[token];
  std::size_t runs = 0;
  std::int32_t begin = 0;
  for (std::size_t token = 0; token < ends_.size(); ++token) {
    if (ends_[token] == 0) continue;
    ids[runs] = static_cast<std::int32_t>(token);
    begins[runs++] = begin;
    begin += std::exchange(ends_[token], begin);
  }
  begins[runs] = begin;
  for (std::size_t row = 0; row < tokens.size(); ++row)
    order[ends_[tokens[row]]++] = static_cast<std::int32_t>(row);
  return runs;
}

}  // namespace dtrun::worker::cuda
