#include "worker/checkpoint/layout.h"

#include <algorithm>
#include <limits>

#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

std::string shape_text(const std::vector<std::int64_t>& shape) { return Json(shape).dump(); }

Status not_ours(const std::string& what) {
  return Status(kExitConfig, what +
                                 ": it is a checkpoint of another model or for other data; choose another "
                                 "output_dir or checkpoint");
}

// The tensor called `name` with this parameter's shape.
Result<const Tensor*> find_tensor(const Safetensors& file, const std::string& name,
                                  const Parameter& parameter) {
  const auto found = std::ranges::find(file.tensors, name, &Tensor::name);
  if (found == file.tensors.end()) return not_ours("has no tensor \"" + name + "\", which this model needs");
  if (found->shape != parameter.shape) {
    return not_ours("tensor \"" + name + "\" has shape " + shape_text(found->shape) + ", this model needs " +
                    shape_text(parameter.shape));
  }
  return &*found;
}

// "momentum_buffer" for "momentum_buffer.conv1.weight"; nothing if no parameter has such an end.
std::optional<std::string> slot_of(const std::string& tensor, const Program& program) {
  for (const Parameter& parameter : program.parameters) {
    const std::string end = "." + parameter.name;
    if (tensor.size() > end.size() && tensor.ends_with(end))
      return tensor.substr(0, tensor.size() - end.size());
  }
  return std::nullopt;
}

// Whether it is one; none at all is. Numbers that are not finite are null.
bool parse_record(const Json& json, EvaluationRecord* record) {
  if (json.is_null()) return true;
  if (!json.is_object()) return false;
  bool good = true;
  const auto integer = [&](const char* name, std::int64_t* field) {
    const Json value = json.value(name, Json());
    good = good && value.is_number_integer();
    if (good) *field = value.get<std::int64_t>();
  };
  const auto number = [&](const char* name, double* field) {
    const Json value = json.value(name, Json());
    good = good && (value.is_number() || value.is_null());
    if (good) *field = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  integer("evaluated_step", &record->evaluated_step);
  integer("best_step", &record->best_step);
  integer("without_improvement", &record->without_improvement);
  number("best_loss", &record->best_loss);
  number("best_accuracy", &record->best_accuracy);
  return good;
}

}  // namespace

std::vector<Tensor> model_tensors(const Program& program) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : program.parameters) {
    tensors.push_back({.name = parameter.name,
                       .shape = parameter.shape,
                       .offset = parameter.offset,
                       .size = parameter.size});
  }
  return tensors;
}

std::vector<Tensor> optimizer_tensors(const Program& program, const std::vector<OptimizerSlot>& slots) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (const Parameter& parameter : program.parameters) {
      tensors.push_back({slots[i].name + "." + parameter.name, parameter.shape,
                         i * program.size + parameter.offset, parameter.size});
    }
  }
  return tensors;
}

Result<std::vector<float>> parameter_values(const Safetensors& file, const Program& program,
                                            const std::string& prefix) {
  std::vector<float> flat(program.size);
  for (const Parameter& parameter : program.parameters) {
    const auto tensor = find_tensor(file, prefix + parameter.name, parameter);
    if (!tensor.ok()) return tensor.status();
    copy_values(file, *tensor.value(), flat.data() + parameter.offset);
  }
  return flat;
}

Result<std::vector<float>> model_values(const Safetensors& file, const Program& program) {
  if (file.tensors.size() > program.parameters.size()) {
    return not_ours("has " + std::to_string(file.tensors.size()) + " tensors, this model has " +
                    std::to_string(program.parameters.size()));
  }
  return parameter_values(file, program, "");
}

Result<std::vector<OptimizerSlot>> optimizer_values(const Safetensors& file, const Program& program) {
  std::vector<OptimizerSlot> slots;
  for (const Tensor& tensor : file.tensors) {  // by offset, so in the order in which they were written
    const auto name = slot_of(tensor.name, program);
    if (!name)
      return not_ours("tensor \"" + printable(tensor.name) + "\" belongs to no parameter of this model");
    const bool known = std::ranges::find(slots, *name, &OptimizerSlot::name) != slots.end();
    if (known) continue;
    auto values = parameter_values(file, program, *name + ".");
    if (!values.ok()) return values.status();
    slots.push_back({*name, std::move(values).value()});
  }
  return slots;
}

std::string to_json(const StateText& state) {
  // The config as an object, for people, where that loses nothing; else as the text that it is.
  Json config = Json::parse(state.config_json, nullptr, false);
  if (config.is_discarded() || config.dump(2) + "\n" != state.config_json) config = state.config_json;
  Json json = {{"format_version", kFormatVersion}, {"step", state.step}};
  if (!state.device.empty()) json["device"] = state.device;
  const EvaluationRecord& record = state.evaluations;
  if (record.evaluated_step >= 0)
    json["evaluations"] = {{"evaluated_step", record.evaluated_step},
                           {"best_step", record.best_step},
                           {"best_loss", record.best_loss},
                           {"best_accuracy", record.best_accuracy},
                           {"without_improvement", record.without_improvement}};
  json["config"] = config;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<StateText> parse_state(std::string_view text) {
  const auto parsed = parse_strict_json(text);
  if (!parsed.ok()) return Status(kExitNoInput, parsed.status().message());
  const Json& json = parsed.value().value;
  const Status malformed(kExitNoInput, "is not {\"format_version\": …, \"step\": …, \"config\": …}");
  if (!json.is_object()) return malformed;
  const Json version = json.value("format_version", Json()), step = json.value("step", Json());
  const Json config = json.value("config", Json());
  if (!version.is_number_integer() || !step.is_number_unsigned() ||
      !(config.is_string() || config.is_object())) {
    return malformed;
  }
  if (version != kFormatVersion) {
    return Status(kExitNoInput, "has format_version " + version.dump() + ", this dtrun reads " +
                                    std::to_string(kFormatVersion) + "; use the version that wrote it");
  }
  StateText state{step.get<std::int64_t>(),
                  config.is_string() ? config.get<std::string>() : config.dump(2) + "\n"};
  const Json device = json.value("device", Json(""));
  if (!device.is_string()) return malformed;
  state.device = device.get<std::string>();
  if (!parse_record(json.value("evaluations", Json()), &state.evaluations)) return malformed;
  return state;
}

}  // namespace dtrun::worker
