// Any bytes as a config: a status or a config whose canonical text reads back to itself. The bytes before a
// first zero byte are an override.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/config/config.h"

using namespace dtrun::worker;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos) {
    overrides.push_back(text.substr(0, zero));
    text.erase(0, zero + 1);
  }
  const auto config = parse_config(text, "fuzz.json", overrides);
  if (!config.ok()) {
    if (config.status().message().empty()) std::abort();
    return 0;
  }
  const std::string canonical = to_canonical_json(config.value());
  const auto again = parse_config(canonical, "canonical", {});
  if (!again.ok() || to_canonical_json(again.value()) != canonical) std::abort();
  if (!first_difference(canonical, to_canonical_json(again.value())).empty()) std::abort();
  first_difference(canonical, text);
  return 0;
}
