// Any bytes as an IDX file of images or labels, as gzip or not: a status or an array of the size that its
// header says.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "worker/data/images/idx.h"

using namespace dtrun::worker;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const IdxRank rank : {IdxRank(1), IdxRank(3), IdxRank(2, 4)}) {
    std::vector<std::uint8_t> content;
    const auto array = parse_idx({data, size}, rank, [&](std::size_t bytes) {
      content.resize(bytes);
      return std::span(content);
    });
    const auto dims = parse_idx_dims({data, size}, rank);
    if (!array.ok()) {
      if (array.status().message().empty()) std::abort();
      continue;
    }
    std::uint64_t product = 1;
    for (std::uint32_t dim : array.value().dims) product *= dim;
    if (array.value().values.size() != product || !dims.ok() || dims.value() != array.value().dims)
      std::abort();
  }
  return 0;
}
