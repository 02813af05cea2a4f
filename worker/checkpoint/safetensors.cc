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

// REQUIRES: data_size < 2^60
Result<Tensor> parse_tensor(const std::string& name, const Json& value, std::uint64_t data_size) {
  const std::string who = "tensor \"" + printable(name.substr(0, 200)) + "\" ";
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return fault(who + "is not described by dtype, shape and data_offsets");
  }
  // PyTorch's batch norms have a count of steps beside what this model needs.
  const bool counts = value["dtype"] == "I64" && name.ends_with("num_batches_tracked");
  const std::uint64_t item = counts ? sizeof(std::int64_t) : sizeof(float);
  if (value["dtype"] != "F32" && !counts)
    return fault(who + "has dtype " + shown(value["dtype"]) + ", wanted \"F32\"");
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
  if (begin > end || end > data_size || begin % sizeof(float) != 0) {
    return fault(who + "has data_offsets " + shown(offsets) + " outside of the data's " +
                 std::to_string(data_size) + " bytes: the file is truncated or damaged");
  }
  const std::uint64_t values = values_of(shape, data_size);
  if (values * item != end - begin) {
    return fault(who + "has shape " + shown(shape) + ", which does not fill its data_offsets " +
                 shown(offsets));
  }
  return Tensor{.name = name,
                .shape = shape.get<std::vector<std::int64_t>>(),
                .offset = begin / sizeof(float),
                .size = (end - begin) / sizeof(float)};
}

// Checks that tensors cover the data from 0 to its end, without gap or overlap. REQUIRES: sorted by offset.
Status check_cover(const std::vector<Tensor>& tensors, std::uint64_t data_size) {
  std::uint64_t next = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.offset != next) {
      return fault("tensor \"" + printable(tensor.name.substr(0, 200)) +
                   "\" does not begin where the one before it ends");
    }
    next += tensor.size;
  }
  if (next * sizeof(float) != data_size) {
    return fault("its tensors take " + std::to_string(next * sizeof(float)) + " bytes, but " +
                 std::to_string(data_size) + " follow the header: the file is truncated or damaged");
  }
  return Status();
}

Result<std::string_view> header_text(std::string_view file) {
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

Result<Safetensors> parse_safetensors(std::string_view file) {
  ASSIGN_OR_RETURN(const auto text, header_text(file));
  const auto json = parse_strict_json(text);
  if (!json.ok()) return fault("its header is not JSON: " + json.status().message());
  const Json& header = json.value().value;
  if (!header.is_object()) return fault("its header is not a JSON object");
  if (!json.value().repeated.empty())
    return fault("its header repeats " + printable(json.value().repeated[0]));

  Safetensors result;
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
  std::ranges::sort(result.tensors, {}, [](const Tensor& t) { return std::pair(t.offset, t.size); });
  RETURN_IF_ERROR(check_cover(result.tensors, result.data.size()));
  return result;
}

void copy_values(const Safetensors& file, const Tensor& tensor, float* to) {
  if (tensor.size == 0) return;
  std::memcpy(to, file.data.data() + tensor.offset * sizeof(float), tensor.size * sizeof(float));
}

}  // namespace dtrun::worker
