// Any bytes as the beginning of a token file: a status, or tokens that lie within the file.
#include <cstdint>
#include <cstdlib>

#include "worker/data/tokens.h"

using namespace dtrun::worker;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto layout = parse_token_header({data, size < kTokenHeader ? size : kTokenHeader}, size);
  if (!layout.ok()) {
    if (layout.status().message().empty()) std::abort();
    return 0;
  }
  const auto& [begin, tokens] = layout.value();
  if (tokens == 0 || begin + 2 * tokens != size) std::abort();
  return 0;
}
