// Any bytes as a safetensors file: a status or tensors that cover the data exactly.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "worker/checkpoint/safetensors.h"

using namespace dtrun::worker;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto parsed = parse_safetensors(file);
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  std::size_t next = 0;
  for (const Tensor& tensor : parsed.value().tensors) {
    if (tensor.offset != next) std::abort();
    std::vector<float> values(tensor.size);
    copy_values(parsed.value(), tensor, values.data());
    next += tensor.size;
  }
  if (next * sizeof(float) != parsed.value().data.size()) std::abort();
  // Parsed tensors can be written and read again.
  const std::string copy =
      safetensors_header(parsed.value().tensors, parsed.value().metadata) + std::string(parsed.value().data);
  const auto again = parse_safetensors(copy);
  if (!again.ok() || again.value().tensors.size() != parsed.value().tensors.size()) std::abort();
  return 0;
}
