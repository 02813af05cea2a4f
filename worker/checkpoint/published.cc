#include "worker/checkpoint/published.h"

#include <bit>
#include <cstring>
#include <set>

#include "proto/core/utf8.h"
#include "proto/json/json.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kPickle[] = "pytorch_model.bin";

Status fault(const std::string& message) { return Status(kExitNoInput, message); }

// IEEE 754's binary16, of which each value is one of binary32.
float of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 0) {
    const auto size = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float of_bfloat(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

void widen(std::string_view halves, float (*value)(std::uint16_t), std::string* out) {
  for (std::size_t at = 0; at < halves.size(); at += sizeof(std::uint16_t)) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves.data() + at, sizeof half);
    const float wide = value(half);
    out->append(reinterpret_cast<const char*>(&wide), sizeof wide);
  }
}

struct Weights {
  std::vector<Tensor> tensors;
  std::set<std::string> names;
  std::string data;
};

Status add(const TypedSafetensors& file, Weights* weights) {
  for (const TypedTensor& tensor : file.tensors) {
    const std::size_t before = weights->data.size();
    const std::string_view bytes = file.data.substr(tensor.begin, tensor.end - tensor.begin);
    if (tensor.type == "F32")
      weights->data.append(bytes);
    else if (tensor.type == "F16")
      widen(bytes, of_half, &weights->data);
    else if (tensor.type == "BF16")
      widen(bytes, of_bfloat, &weights->data);
    else if (tensor.type.starts_with('F') || tensor.type.starts_with('C'))
      return fault("tensor \"" + printable(tensor.name) + "\" has dtype \"" + tensor.type +
                   "\", wanted \"F32\", \"F16\" or \"BF16\"");
    else
      continue;
    if (!weights->names.insert(tensor.name).second)
      return fault("tensor \"" + printable(tensor.name) + "\" is in another file, too");
    weights->tensors.push_back({.name = tensor.name,
                                .shape = tensor.shape,
                                .offset = before / sizeof(float),
                                .size = (weights->data.size() - before) / sizeof(float)});
  }
  return {};
}

// The names of files in an index, without any that lies elsewhere.
Result<std::set<std::string>> files_in(const std::string& index) {
  const Json json = parse_json(index);
  const Json places = json.is_object() ? json.value("weight_map", Json()) : Json();
  if (!places.is_object() || places.empty()) return fault("has no \"weight_map\"");
  std::set<std::string> files;
  for (const auto& [tensor, file] : places.items()) {
    if (!file.is_string()) return fault("has something else than names of files in its \"weight_map\"");
    const auto name = file.get<std::string>();
    if (name.empty() || name == ".." || name.find('/') != std::string::npos)
      return fault("names a file that is not beside it: " + printable(name));
    files.insert(name);
  }
  return files;
}

Result<std::vector<fs::path>> files_of(const fs::path& from) {
  std::error_code ignored;
  if (!fs::is_directory(from, ignored)) return std::vector<fs::path>{from};
  const fs::path index = from / kIndex;
  if (fs::exists(from / kModelFile, ignored) || !fs::exists(index, ignored)) {
    if (!fs::exists(from / kModelFile, ignored) && fs::exists(from / kPickle, ignored))
      return fault(from.string() + " has only " + kPickle +
                   ", which is a pickle: transformers' save_pretrained() writes " + kModelFile);
    return std::vector<fs::path>{from / kModelFile};
  }
  ASSIGN_OR_RETURN(const std::string text, read_whole(index));
  const Result<std::set<std::string>> names = files_in(text);
  if (!names.ok()) return names.status().within(index.string());
  std::vector<fs::path> files;
  for (const std::string& name : names.value()) files.push_back(from / name);
  return files;
}

}  // namespace

Result<std::string> published_weights(const fs::path& from) {
  ASSIGN_OR_RETURN(const std::vector<fs::path> files, files_of(from));
  Weights weights;
  for (const fs::path& path : files) {
    ASSIGN_OR_RETURN(const std::string content, read_whole(path));
    const Result<TypedSafetensors> file = parse_typed_safetensors(content);
    const Status status = file.ok() ? add(file.value(), &weights) : file.status();
    if (!status.ok()) return status.within(path.string());
  }
  return safetensors_header(weights.tensors, {}) + weights.data;
}

}  // namespace dtrun::worker
