// What an entry of the options' table says of itself, in words and as data.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/core/overloaded.h"
#include "worker/config/options.h"

namespace dtrun::worker {
namespace {

std::string number_text(double value) {
  // The first test keeps the conversion within range.
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return nlohmann::json(value).dump();
}

std::string range_text(const Range& range) {
  if (range.not_zero) return number_text(range.min) + ", or 1 to " + number_text(range.max);
  const std::string from = (range.min_open ? "more than " : "") + number_text(range.min);
  if (range.max == std::numeric_limits<double>::infinity()) {
    return range.min_open ? from : from + " or more";
  }
  const std::string to = number_text(range.max);
  if (range.min_open) return from + (range.max_open ? ", less than " : ", at most ") + to;
  return from + (range.max_open ? " or more, less than " : " to ") + to;
}

}  // namespace

std::string quoted_list(std::span<const std::string_view> choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += '"' + std::string(choices[i]) + '"';
  }
  return text;
}

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
  const auto text = [](const auto& value) { return nlohmann::json(value).dump(); };
  return std::visit(Overloaded{
                        [&](const ChoiceRef& field) { return field.get() ? text(*field.get()) : ""; },
                        [&](const ResumeFrom* field) { return text(field->text); },
                        [&](const auto* field) {
                          if constexpr (requires { field->has_value(); })
                            return field->has_value() ? text(**field) : "";
                          else
                            return text(*field);
                        },
                    },
                    option.field(defaults));
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
  const FieldRef field = option.field(scratch);
  if (const auto* const choice = std::get_if<ChoiceRef>(&field)) return quoted_list(choice->names());
  if (option.spelling.accepts) return std::string(option.spelling.allowed);
  if (std::holds_alternative<ResumeFrom*>(field)) return R"("auto", "none" or a checkpoint's directory)";
  if (option.range.min == -std::numeric_limits<double>::infinity()) return "";
  return range_text(option.range);
}

}  // namespace dtrun::worker
