#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/json/json.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in the file");

namespace {

constexpr std::size_t kPrefix = 8;                 // the header's size
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kMaxDimensions = 16;
constexpr char kMetadata[] = "__metadata__";

Status fault(const std::string& message) { return Status(kExitNoInput, message); }

bool is_size(const Json& value) { return value.is_number_unsigned(); }

Status parse_metadata(const Json& value, std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) return fault("its __metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return fault("its __metadata__ has something else than strings");
    (*metadata)[key] = text.get<std::string>();
  }
  return Status();
}

// The number of values of a shape, or one more than `most` if it is larger.
std::uint64_t values_of(const Json& shape, std::uint64_t most) {
  std::uint64_t values = 1;
  for (const Json& dimension : shape) {
    const auto size = dimension.get<std::uint64_t>();
    if (size == 0) return 0;
    values = values > most / size ? most + 1 : values * size;
  }
  return values;
}

// Bytes of a value, by the reference implementation's names; types of less than a byte have no files here.
struct ValueType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr ValueType kTypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4}, {"I16", 2},     {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

std::string who_is(const std::string& name) { return "tensor \"" + printable(name.substr(0, 200)) + "\" "; }

// REQUIRES: data_size < 2^60
Result<TypedTensor> parse_tensor(const std::string& name, const Json& value, std::uint64_t data_size) {
  const std::string who = who_is(name);
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return fault(who + "is not described by dtype, shape and data_offsets");
  }
  const auto* const type =
      std::ranges::find_if(kTypes, [&](const ValueType& one) { return value["dtype"] == one.name; });
  if (type == std::end(kTypes)) return fault(who + "has the unknown dtype " + shown(value["dtype"]));
  const Json& shape = value["shape"];
  const Json& offsets = value["data_offsets"];
  if (!shape.is_array() || shape.size() > kMaxDimensions ||
      !std::all_of(shape.begin(), shape.end(), is_size)) {
    return fault(who + "has an invalid shape " + shown(shape));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), is_size)) {
    return fault(who + "has invalid data_offsets " + shown(offsets));
  }
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_size) {
    return fault(who + "has data_offsets " + shown(offsets) + " outside of the data's " +
                 std::to_string(data_size) + " bytes: the file is truncated or damaged");
  }
  const std::uint64_t values = values_of(shape, data_size);
  if (values * type->bytes != end - begin) {
    return fault(who + "has shape " + shown(shape) + ", which does not fill its data_offsets " +
                 shown(offsets));
  }
  return TypedTensor{.name = name,
                     .type = std::string(type->name),
                     .shape = shape.get<std::vector<std::int64_t>>(),
                     .begin = begin,
                     .end = end};
}

// Checks that tensors cover the data from 0 to its end, without gap or overlap. REQUIRES: sorted by offset.
Status check_cover(const std::vector<TypedTensor>& tensors, std::uint64_t data_size) {
  std::uint64_t next = 0;
  for (const TypedTensor& tensor : tensors) {
    if (tensor.begin != next)
      return fault(who_is(tensor.name) + "does not begin where the one before it ends");
    next = tensor.end;
  }
  if (next != data_size) {
    return fault("its tensors take " + std::to_string(next) + " bytes, but " + std::to_string(data_size) +
                 " follow the header: the file is truncated or damaged");
  }
  return Status();
}

Result<std::string_view> header_text(std::string_view file) {
  if (file.starts_with("version https://git-lfs"))
    return fault("is a Git LFS pointer, not the file that it stands for: git lfs pull fetches that");
  if (file.starts_with('<'))
    return fault("is a page of HTML, not a safetensors file: was its download refused?");
  if (file.size() < kPrefix) return fault("file ends within the header's size: truncated");
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < kPrefix; ++i) {
    size |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  if (size > kMaxHeader)
    return fault("its header would have " + std::to_string(size) + " bytes: not a safetensors file");
  if (size > file.size() - kPrefix) return fault("file ends within the header: truncated");
  return file.substr(kPrefix, size);
}

}  // namespace

std::string safetensors_header(std::span<const Tensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t begin = tensor.offset * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, begin + tensor.size * sizeof(float)}}};
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string prefix;
  for (std::size_t i = 0; i < kPrefix; ++i) prefix += static_cast<char>(text.size() >> (8 * i));
  return prefix + text;
}

Result<TypedSafetensors> parse_typed_safetensors(std::string_view file) {
  ASSIGN_OR_RETURN(const auto text, header_text(file));
  const auto json = parse_strict_json(text);
  if (!json.ok()) return fault("its header is not JSON: " + json.status().message());
  const Json& header = json.value().value;
  if (!header.is_object()) return fault("its header is not a JSON object");
  if (!json.value().repeated.empty())
    return fault("its header repeats " + printable(json.value().repeated[0]));

  TypedSafetensors result;
  result.data = file.substr(kPrefix + text.size());
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(parse_metadata(value, &result.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(auto tensor, parse_tensor(name, value, result.data.size()));
    result.tensors.push_back(std::move(tensor));
  }
  // An empty tensor comes before the one that begins at its place.
  std::ranges::sort(result.tensors, {}, [](const TypedTensor& t) { return std::pair(t.begin, t.end); });
  RETURN_IF_ERROR(check_cover(result.tensors, result.data.size()));
  return result;
}

Result<Safetensors> parse_safetensors(std::string_view file) {
  ASSIGN_OR_RETURN(TypedSafetensors typed, parse_typed_safetensors(file));
  Safetensors result{.tensors = {}, .metadata = std::move(typed.metadata), .data = typed.data};
  for (TypedTensor& tensor : typed.tensors) {
    // PyTorch's batch norms have a count of steps beside what this model needs.
    const bool counts = tensor.type == "I64" && tensor.name.ends_with("num_batches_tracked");
    if (tensor.type != "F32" && !counts)
      return fault(who_is(tensor.name) + "has dtype \"" + tensor.type + "\", wanted \"F32\"");
    result.tensors.push_back({.name = std::move(tensor.name),
                              .shape = std::move(tensor.shape),
                              .offset = tensor.begin / sizeof(float),
                              .size = (tensor.end - tensor.begin) / sizeof(float)});
  }
  return result;
}

void copy_values(const Safetensors& file, const Tensor& tensor, float* to) {
  if (tensor.size == 0) return;
  std::memcpy(to, file.data.data() + tensor.offset * sizeof(float), tensor.size * sizeof(float));
}

}  // namespace dtrun::worker
