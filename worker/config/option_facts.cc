// What an entry of the options' table says of itself, in words and as data.
#include <algorithm>

#include "proto/json/json.h"
#include "worker/config/options.h"

namespace dtrun::worker {
std::string_view group_of(const Option& option) {
  const std::string_view path = option.pointer.substr(1);
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view name_of(const Option& option) {
  return option.pointer.substr(option.pointer.rfind('/') + 1);
}

std::string path_of(const Option& option) {
  std::string path(option.pointer.substr(1));
  std::ranges::replace(path, '/', '.');
  return path;
}

std::string type_of(std::string_view group) {
  return group == kSchedulerKwargs ? "/train/lr_scheduler_type" : "/" + std::string(group) + "/type";
}

bool applies(const Option& option, const JobConfig& config) {
  if (option.of.empty()) return true;
  const std::string_view group = group_of(option);
  const std::string type = group == kSchedulerKwargs ? name_of(config.train.lr_scheduler_type)
                           : group == "model"        ? name_of(config.model.type)
                                                     : name_of(config.data.type);
  return std::ranges::find(option.of, type) != option.of.end();
}

std::vector<std::string_view> option_groups() {
  std::vector<std::string_view> groups;
  for (const Option& option : config_options()) {
    const std::string_view group = group_of(option);
    if (!group.empty() && (groups.empty() || groups.back() != group)) groups.push_back(group);
  }
  return groups;
}

std::string default_text(const Option& option) {
  if (option.required) return "";
  JobConfig defaults;
  const Json value = json_of(option.field(defaults));
  return value.is_null() ? "" : json_text(value);
}

std::optional<std::string> launch_value(const Option& option, JobConfig& config) {
  const FieldRef field = option.field(config);
  if (const auto* choice = std::get_if<ChoiceRef>(&field)) return choice->get();
  if (const auto* text = std::get_if<std::optional<std::string>*>(&field)) return **text;
  const auto* count = std::get_if<std::optional<int>*>(&field);
  if (count == nullptr || !**count) return std::nullopt;
  return std::to_string(***count);
}

std::string allowed_values(const Option& option) {
  JobConfig scratch;
  return allowed_values(option.field(scratch), option.rule());
}

}  // namespace dtrun::worker
