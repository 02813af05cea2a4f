#include "worker/checkpoint/teacher.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "worker/base/error.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/trained_model.h"

namespace dtrun::worker {
namespace {

std::int64_t classes_of(const Program& program) {
  return std::get<LogSoftmaxNll>(program.nodes.back().op).classes;
}

// The rows of the matrix that makes the logits; nothing if the file has none.
std::optional<std::int64_t> classes_in(const Safetensors& file, const Program& program) {
  for (auto node = program.nodes.rbegin(); node != program.nodes.rend(); ++node) {
    const auto* const linear = std::get_if<Linear>(&node->op);
    if (linear == nullptr) continue;
    const auto found = std::ranges::find(
        file.tensors, prefix_in(file) + program.parameters[linear->weight].name, &Tensor::name);
    if (found == file.tensors.end() || found->shape.size() != 2) return std::nullopt;
    return found->shape[linear->in_first ? 1 : 0];
  }
  return std::nullopt;
}

[[noreturn]] void refuse_classes(const std::filesystem::path& file, std::int64_t teachers,
                                 std::int64_t students) {
  throw WorkerError(kExitConfig, "/train/distill_from: " + file.string() + " tells " +
                                     std::to_string(teachers) + " classes apart, the model to train " +
                                     std::to_string(students) +
                                     ": each needs an output for each output of the other; name a teacher "
                                     "that was trained with the same classes or vocabulary");
}

}  // namespace

std::shared_ptr<const Teacher> load_teacher(const TrainConfig& train, const Program& student) {
  if (!train.distill_from) return nullptr;
  FoundTeacher found = find_teacher(train, student.sample);
  const std::string content = value_or_throw(read_whole(found.file));
  const auto in_file = [&](auto result) {
    if (!result.ok()) result = result.status().within("/train/distill_from: " + found.file.string());
    return value_or_throw(std::move(result));
  };
  const Safetensors file = in_file(parse_safetensors(content));
  const std::int64_t wanted = classes_of(student);
  const std::int64_t classes = classes_in(file, found.program).value_or(classes_of(found.program));
  if (classes != wanted) refuse_classes(found.file, classes, wanted);
  auto teacher = std::make_shared<Teacher>();
  teacher->parameters = in_file(parameter_values(file, found.program, prefix_in(file)));
  teacher->program = std::move(found.program);
  const std::string_view whole = content;
  teacher->path = found.file.string();
  teacher->sha256 = digest_of({&whole, 1}).sha256;
  teacher->temperature = static_cast<float>(train.distill_temperature);
  teacher->alpha = static_cast<float>(train.distill_alpha);
  return teacher;
}

}  // namespace dtrun::worker
