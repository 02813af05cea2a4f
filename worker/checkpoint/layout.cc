#include "worker/checkpoint/layout.h"

#include <algorithm>

#include "proto/core/text.h"
#include "proto/json/json.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
std::string shape_text(const std::vector<std::int64_t>& shape) { return json_text(shape); }

Status not_ours(const std::string& what) {
  return Status(kExitConfig, what +
                                 ": it is a checkpoint of another model or for other data; choose another "
                                 "output_dir or checkpoint");
}

// The tensor called `name` with this parameter's shape; null, and a fault, if there is none.
const Tensor* find_tensor(const Safetensors& file, const std::string& name, const Parameter& parameter,
                          std::vector<std::string>* faults) {
  const auto found = std::ranges::find(file.tensors, name, &Tensor::name);
  if (found != file.tensors.end() && found->shape == parameter.shape) return &*found;
  faults->push_back(found == file.tensors.end()
                        ? "has no tensor \"" + name + "\", which this model needs"
                        : "tensor \"" + name + "\" has shape " + shape_text(found->shape) +
                              ", this model needs " + shape_text(parameter.shape));
  return nullptr;
}

// "momentum_buffer" for "momentum_buffer.conv1.weight"; nothing if no parameter is called as the rest. A
// slot's name has no dot: of ResNet's "momentum_buffer.layer1.0.conv1.weight" the end is another parameter's
// name.
std::optional<std::string> slot_of(const std::string& tensor, const Program& program) {
  const std::size_t dot = tensor.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto found = std::ranges::find(program.parameters, tensor.substr(dot + 1), &Parameter::name);
  return found != program.parameters.end() ? std::optional(tensor.substr(0, dot)) : std::nullopt;
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

std::string prefix_in(const Safetensors& file) {
  static constexpr char kPrefix[] = "transformer.";
  const bool prefixed = std::ranges::any_of(
      file.tensors, [](const Tensor& tensor) { return tensor.name.starts_with(kPrefix); });
  return prefixed ? kPrefix : "";
}

std::vector<std::string> take_parameters(const Safetensors& file, const Program& program,
                                         const std::string& prefix, std::span<float> flat) {
  std::vector<std::string> faults;
  for (const Parameter& parameter : program.parameters)
    if (const Tensor* const tensor = find_tensor(file, prefix + parameter.name, parameter, &faults))
      copy_values(file, *tensor, flat.data() + parameter.offset);
  return faults;
}

Result<std::vector<float>> parameter_values(const Safetensors& file, const Program& program,
                                            const std::string& prefix) {
  std::vector<float> flat(program.size);
  const std::vector<std::string> faults = take_parameters(file, program, prefix, flat);
  if (!faults.empty()) return not_ours(join(faults, "; "));
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
  for (const Tensor& tensor : file.tensors) {  // by offset, which is the order in which they were written
    const auto name = slot_of(tensor.name, program);
    if (!name)
      return not_ours("tensor \"" + printable(tensor.name) + "\" belongs to no parameter of this model");
    const bool known = std::ranges::find(slots, *name, &OptimizerSlot::name) != slots.end();
    if (known) continue;
    ASSIGN_OR_RETURN(auto values, parameter_values(file, program, *name + "."));
    slots.push_back({*name, std::move(values)});
  }
  return slots;
}

}  // namespace dtrun::worker
