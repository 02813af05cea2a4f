// The safetensors format: 8 bytes little-endian header size, a JSON header
// {"name": {"dtype": "F32", "shape": […], "data_offsets": [begin, end]}, "__metadata__": {…}} padded with
// spaces to a multiple of 8, then the tensors' bytes without gaps.
// Functions of bytes: files are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::worker {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset = 0, size = 0;  // in the data part, in floats
};

struct Safetensors {
  std::vector<Tensor> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  std::string_view data;  // fp32, little-endian, maybe unaligned; within the parsed bytes
};

// All that precedes the data. REQUIRES: tensors lie one behind the other, from offset 0.
std::string safetensors_header(std::span<const Tensor> tensors,
                               const std::map<std::string, std::string>& metadata);

// A tensor of any type; its place in bytes of the data part.
struct TypedTensor {
  std::string name, type;  // "F32", "BF16", "BOOL" …
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;
};

struct TypedSafetensors {
  std::vector<TypedTensor> tensors;  // by place
  std::map<std::string, std::string> metadata;
  std::string_view data;  // within the parsed bytes
};

// As parse_safetensors(), for the types that any program has.
Result<TypedSafetensors> parse_typed_safetensors(std::string_view file);

// The tensors of fp32. A batch norm's num_batches_tracked, of I64, takes the place of two floats for each of
// its numbers. Strict: tensors must cover the data exactly, without overlap, gap or repeated name. Failures
// have EX_NOINPUT.
Result<Safetensors> parse_safetensors(std::string_view file);

// Copies a tensor's values out.
void copy_values(const Safetensors& file, const Tensor& tensor, float* to);

}  // namespace dtrun::worker
