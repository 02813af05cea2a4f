#include "worker/config/layers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "proto/core/nearest.h"
#include "proto/core/text.h"
#include "worker/config/field.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostLayers = 1000;

struct Argument {
  LayerType of;
  std::string_view name;
  FieldRef (*field)(Layer&);
  bool required = false;
  Bounds range = {};

  Rule rule() const { return {.range = range}; }
};

template <auto Member>
FieldRef in(Layer& layer) {
  return field_ref(&(layer.*Member));
}

constexpr Bounds kCount{.min = 1, .max = 1 << 17};
constexpr Bounds kKernel{.min = 1, .max = 31};
constexpr Bounds kPadding{.min = 0, .max = 30};
constexpr Bounds kEpsilon{.min = 0, .max = 1, .min_open = true};
constexpr Bounds kMomentum{.min = 0, .max = 1};
constexpr Argument kArguments[] = {
    {LayerType::kConv2d, "in_channels", in<&Layer::in>, false, kCount},
    {LayerType::kConv2d, "out_channels", in<&Layer::out_channels>, true, {.min = 1, .max = 4096}},
    {LayerType::kConv2d, "kernel_size", in<&Layer::kernel_size>, true, kKernel},
    {LayerType::kConv2d, "stride", in<&Layer::stride>, false, kKernel},
    {LayerType::kConv2d, "padding", in<&Layer::padding>, false, kPadding},
    {LayerType::kConv2d, "bias", in<&Layer::bias>},
    {LayerType::kMaxPool2d, "kernel_size", in<&Layer::kernel_size>, true, kKernel},
    {LayerType::kMaxPool2d, "stride", in<&Layer::stride>, false, kKernel},
    {LayerType::kMaxPool2d, "padding", in<&Layer::padding>, false, kPadding},
    {LayerType::kAdaptiveAvgPool2d, "output_size", in<&Layer::output_size>, true, {.min = 1, .max = 1}},
    {LayerType::kLinear, "in_features", in<&Layer::in>, false, {.min = 1, .max = 1 << 24}},
    {LayerType::kLinear, "out_features", in<&Layer::out_features>, false, kCount},
    {LayerType::kLinear, "bias", in<&Layer::bias>},
    {LayerType::kLayerNorm, "normalized_shape", in<&Layer::in>, false, kCount},
    {LayerType::kBatchNorm2d, "num_features", in<&Layer::in>, false, kCount},
    {LayerType::kBatchNorm2d, "eps", in<&Layer::eps>, false, kEpsilon},
    {LayerType::kBatchNorm2d, "momentum", in<&Layer::momentum>, false, kMomentum},
    {LayerType::kBatchNorm1d, "num_features", in<&Layer::in>, false, kCount},
    {LayerType::kBatchNorm1d, "eps", in<&Layer::eps>, false, kEpsilon},
    {LayerType::kBatchNorm1d, "momentum", in<&Layer::momentum>, false, kMomentum},
    {LayerType::kGELU, "approximate", in<&Layer::approximate>, true},
    {LayerType::kDropout, "p", in<&Layer::p>, false, {.min = 0, .max = 1, .max_open = true}},
};

// Modules and arguments that people bring from PyTorch, and why there are none here.
struct Reason {
  std::string_view name, text;
};
constexpr std::string_view kInTheLoss = "leave it out: the loss has it";
constexpr Reason kReasons[] = {
    {"LogSoftmax", kInTheLoss},
    {"Softmax", kInTheLoss},
    {"CrossEntropyLoss", kInTheLoss},
    {"bias", "leave it out: each such layer has one"},
    {"affine", "leave it out: each such layer has a weight and a bias"},
    {"track_running_stats", "leave it out: each such layer does"},
    {"inplace", "leave it out: memory is planned for the whole model"},
};

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !text.empty() && text.size() <= 100 && text.find_first_not_of(kLetters) == text.npos;
}
constexpr Spelling kName{is_name, "letters, digits and _", "^[A-Za-z0-9_]{1,100}$"};
constexpr Rule kNameRule{.spelling = kName};

std::vector<const Argument*> arguments_of(LayerType type) {
  std::vector<const Argument*> arguments;
  for (const Argument& argument : kArguments)
    if (argument.of == type) arguments.push_back(&argument);
  return arguments;
}

std::vector<std::string> names_of(LayerType type) {
  std::vector<std::string> names;
  for (const Argument* const argument : arguments_of(type)) names.emplace_back(argument->name);
  return names;
}

std::vector<std::string> type_names() { return {kNamesOf<LayerType>.begin(), kNamesOf<LayerType>.end()}; }

std::optional<LayerType> type_named(const std::string& name) {
  const auto* const found = std::ranges::find(kNamesOf<LayerType>, name);
  if (found == kNamesOf<LayerType>.end()) return std::nullopt;
  return static_cast<LayerType>(found - kNamesOf<LayerType>.begin());
}

// Behind "unknown argument" and the like.
std::string advice(const std::string& name, const std::vector<std::string>& known) {
  if (const auto* const reason = std::ranges::find(kReasons, name, &Reason::name);
      reason != std::end(kReasons))
    return "; " + std::string(reason->text);
  if (const std::string nearest = nearest_name(name, known); !nearest.empty())
    return "; did you mean \"" + nearest + "\"?";
  return known.empty() ? "; it takes none" : " (known here: " + join(known) + ")";
}

// Reads one list.
class LayerReader {
 public:
  LayerReader(std::vector<Layer>* layers, Faults* faults) : layers_(layers), faults_(faults) {}

  void read(const Json& entry, const std::string& pointer) {
    Layer& layer = layers_->emplace_back();
    layer.name = std::to_string(layers_->size() - 1);
    if (read_type(entry, pointer, layer)) read_names(entry, pointer, layer);
    if (!names_.insert(layer.name).second)
      faults_->add(pointer + "/name", "a layer above is called \"" + layer.name + "\" already");
  }

 private:
  // The type and its arguments; false if there is nothing else to read.
  bool read_type(const Json& entry, const std::string& pointer, Layer& layer) {
    if (entry.is_string()) {
      set_type(entry.get<std::string>(), Json::object(), pointer, layer);
      return false;
    }
    if (!entry.is_object()) {
      faults_->add(pointer, "found " + shown(entry) + " (" + std::string(type_name(entry)) +
                                R"(), wanted a layer such as "ReLU" or {"Linear": {"out_features": 10}})");
      return false;
    }
    std::string types;
    for (const auto& [key, value] : entry.items()) {
      if (key == "name" || key == "input") continue;
      if (!types.empty()) {
        faults_->add(pointer, "is " + types + " and " + key + "; make two layers of it");
        return false;
      }
      types = key;
      set_type(key, value, pointer, layer);
    }
    if (types.empty()) faults_->add(pointer, "names no layer (known: " + join(type_names()) + ")");
    return !types.empty();
  }

  void set_type(const std::string& name, const Json& arguments, const std::string& pointer, Layer& layer) {
    const std::optional<LayerType> type = type_named(name);
    if (!type)
      return faults_->add(pointer, printable(name) + " is no known layer" + advice(name, type_names()));
    layer.type = *type;
    const std::string inner = pointer + "/" + name;
    if (type == LayerType::kAdd) return read_earlier(arguments, inner, &layer.add);
    if (!arguments.is_object())
      return faults_->add(inner, "found " + shown(arguments) + " (" + std::string(type_name(arguments)) +
                                     "), wanted an object with its arguments");
    const std::vector<std::string> known = names_of(*type);
    for (const auto& [key, value] : arguments.items())
      if (std::ranges::find(known, key) == known.end())
        faults_->add(inner + "/" + key, "unknown argument" + advice(key, known));
    for (const Argument* const argument : arguments_of(*type)) {
      const std::string place = inner + "/" + std::string(argument->name);
      const auto given = arguments.find(std::string(argument->name));
      const FieldRef field = argument->field(layer);
      if (given != arguments.end())
        assign(*given, field, argument->rule(), place, faults_);
      else if (argument->required)
        faults_->add(place, "is missing" + allowed_note(field, argument->rule()));
    }
  }

  void read_names(const Json& entry, const std::string& pointer, Layer& layer) {
    if (const auto name = entry.find("name"); name != entry.end())
      assign(*name, &layer.name, kNameRule, pointer + "/name", faults_);
    if (const auto input = entry.find("input"); input != entry.end()) {
      layer.input.emplace();
      read_earlier(*input, pointer + "/input", &*layer.input);
    }
  }

  // The name of a layer above.
  void read_earlier(const Json& value, const std::string& pointer, std::string* field) {
    assign(value, field, kNameRule, pointer, faults_);
    if (faults_->at(pointer) || names_.contains(*field)) return;
    const std::string nearest = nearest_name(*field, std::vector<std::string>(names_.begin(), names_.end()));
    faults_->add(pointer, "no layer above is called \"" + *field + "\"" +
                              (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }

  std::vector<Layer>* layers_;
  Faults* faults_;
  std::set<std::string> names_;  // of the layers so far
};

Json name_schema() {
  std::string none;
  return schema_of(&none, kNameRule);
}

}  // namespace

void assign_layers(const Json& value, std::vector<Layer>* layers, const std::string& pointer,
                   Faults* faults) {
  if (!value.is_array())
    return faults->add(pointer, "found " + shown(value) + " (" + std::string(type_name(value)) +
                                    "), wanted a list of layers");
  if (value.empty() || value.size() > kMostLayers)
    return faults->add(pointer, "has " + counted(static_cast<std::int64_t>(value.size()), "layer") +
                                    " (allowed: 1 to " + std::to_string(kMostLayers) + ")");
  layers->clear();
  LayerReader reader(layers, faults);
  for (std::size_t i = 0; i < value.size(); ++i) reader.read(value[i], pointer + "/" + std::to_string(i));
}

Json json_of(std::span<const Layer> layers) {
  Json list = Json::array();
  for (Layer layer : layers) {
    Json entry = Json::object(), arguments = Json::object();
    for (const Argument* const argument : arguments_of(layer.type))
      if (Json value = json_of(argument->field(layer)); !value.is_null())
        arguments[argument->name] = std::move(value);
    entry[name_of(layer.type)] = layer.type == LayerType::kAdd ? Json(layer.add) : arguments;
    if (layer.name != std::to_string(list.size())) entry["name"] = layer.name;
    if (layer.input) entry["input"] = *layer.input;
    list.push_back(std::move(entry));
  }
  return list;
}

Json layers_schema() {
  Json kinds = Json::array(), bare = Json::array();
  for (const std::string& name : type_names()) {
    const LayerType type = *type_named(name);
    Json arguments = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    Layer defaults;
    for (const Argument* const argument : arguments_of(type)) {
      const std::string argument_name(argument->name);
      Json schema = schema_of(argument->field(defaults), argument->rule());
      if (argument->required) schema.erase("default"), arguments["required"].push_back(argument_name);
      arguments["properties"][argument_name] = schema;
    }
    if (type == LayerType::kAdd) arguments = name_schema();
    if (!arguments.contains("required") && type != LayerType::kAdd) bare.push_back(name);
    kinds.push_back({{"type", "object"},
                     {"additionalProperties", false},
                     {"required", {name}},
                     {"properties", {{name, arguments}, {"name", name_schema()}, {"input", name_schema()}}}});
  }
  kinds.push_back({{"enum", bare}});
  return {{"type", "array"}, {"minItems", 1}, {"maxItems", kMostLayers}, {"items", {{"anyOf", kinds}}}};
}

}  // namespace dtrun::worker
