// The GGUF format, version 3 (github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: header,
// keys, the tensors' names, shapes and places, then their bytes, each from a multiple of 32 on. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dtrun::worker {

// As gguf.GGMLQuantizationType numbers them.
enum class GgufType : std::uint32_t { kF32 = 0, kQ4_0 = 2, kQ8_0 = 8 };

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // as PyTorch's: the rows' length is the last
  GgufType type = GgufType::kF32;
  std::string bytes;
};

using GgufValue =
    std::variant<std::uint32_t, float, std::string, std::vector<std::string>, std::vector<std::int32_t>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

std::string gguf_file(const GgufKeys& keys, std::span<const GgufTensor> tensors);

}  // namespace dtrun::worker
