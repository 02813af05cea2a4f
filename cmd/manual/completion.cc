#include "cmd/manual/completion.h"

#include <nlohmann/json.hpp>

#include "cmd/manual/completion_parts.h"
#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"
#include "worker/config/config.h"

namespace dtrun::cmd {
namespace {

using Json = nlohmann::ordered_json;

void add_overrides(const Json& schema, const std::string& path, std::vector<std::string>* words) {
  for (const auto& [name, property] : schema.at("properties").items()) {
    const std::string key = path + name;
    if (property.contains("properties")) {
      add_overrides(property, key + ".", words);
    } else if (property.contains("enum")) {
      for (const Json& value : property["enum"]) words->push_back(key + "=" + value.get<std::string>());
    } else if (name[0] != '$') {
      words->push_back(key + "=");
    }
  }
}

}  // namespace

std::vector<std::string> names_of(Commands commands) {
  std::vector<std::string> names;
  for (const Command* command : commands) names.emplace_back(command->name);
  return names;
}

std::vector<std::string> long_spellings(const OptionEntry& option) {
  const std::string name = option.name;
  if (with_dashes(name) == name) return {"--" + name};
  return {"--" + name, "--" + with_dashes(name)};
}

std::vector<std::string> spellings(const OptionEntry& option) {
  std::vector<std::string> all = long_spellings(option);
  if (*option.short_name) all.push_back("-" + std::string(option.short_name));
  return all;
}

ValueKind value_kind(const OptionEntry& option) {
  const std::string_view placeholder = option.placeholder;
  if (placeholder == "DIR") return ValueKind::kFolder;
  return placeholder.starts_with("HOST") ? ValueKind::kHost : ValueKind::kAny;
}

bool takes_detached_run(const Command& command) { return std::string_view(command.argument) == "[RUN]"; }

std::vector<std::string> overrides() {
  std::vector<std::string> words;
  add_overrides(Json::parse(worker::config_json_schema()), "", &words);
  return words;
}

std::string replaced(std::string text, std::string_view what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

Result<std::string> completion_script(const std::string& shell, Commands commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  if (shell == "tcsh") return tcsh_script(commands);
  return Status(kExitUsage,
                "expected bash, zsh, fish or tcsh; others complete file names, as for any program");
}

}  // namespace dtrun::cmd
