#include "cmd/options/completion.h"

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "cmd/options/completion_shells.h"
#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"
#include "worker/config/config.h"

namespace dtrun::cmd {
namespace {

using Json = nlohmann::ordered_json;

bool is_word(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == text.npos;
}

// What a placeholder such as "N|auto|cpu|gpu" names literally: "auto cpu gpu".
std::string choices_of(const OptionText& option) {
  std::istringstream parts(option.placeholder);
  std::string choices;
  for (std::string part; std::getline(parts, part, '|');) {
    if (is_word(part)) choices += (choices.empty() ? "" : " ") + part;
  }
  return choices;
}

std::string long_name(const OptionText& option) { return "--" + std::string(option.name); }
std::string dashed_name(const OptionText& option) { return "--" + with_dashes(option.name); }
bool has_two_spellings(const OptionText& option) { return long_name(option) != dashed_name(option); }

// "train.optim=sgd" for each value where the schema names them, else "train.seed=".
void add_overrides(const Json& schema, const std::string& path, std::string* words) {
  for (const auto& [name, property] : schema.at("properties").items()) {
    const std::string key = path + name;
    if (property.contains("properties")) {
      add_overrides(property, key + ".", words);
    } else if (property.contains("enum")) {
      for (const Json& value : property["enum"]) *words += key + "=" + value.get<std::string>() + " ";
    } else if (name[0] != '$') {
      *words += key + "= ";
    }
  }
}

std::string overrides() {
  std::string words;
  add_overrides(Json::parse(worker::config_json_schema()), "", &words);
  words.pop_back();
  return words;
}

std::string replaced(std::string text, std::string_view what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// --- bash

struct BashWords {
  std::string names = "-h --help --version", dashed, flags = " -h --help --version", values;
};

std::string bash_values(const OptionText& option) {
  const std::string choices = choices_of(option);
  std::string action;
  if (!choices.empty()) action = "compgen -W '" + choices + "' -- \"$2\"";
  if (std::string_view(option.placeholder) == "DIR") action = "compgen -d -- \"$2\"";
  if (std::string_view(option.placeholder).starts_with("HOST")) action = "compgen -A hostname -- \"$2\"";
  if (action.empty()) return "";
  std::string names = long_name(option);
  if (has_two_spellings(option)) names += " | " + dashed_name(option);
  if (*option.short_name) names += " | -" + std::string(option.short_name);
  return "    " + names + ") " + action + " ;;\n";
}

void add_option(const OptionText& option, BashWords* words) {
  words->names += " " + long_name(option);
  if (*option.short_name) words->names += " -" + std::string(option.short_name);
  if (has_two_spellings(option)) words->dashed += (words->dashed.empty() ? "" : " ") + dashed_name(option);
  if (!option.is_flag) {
    words->values += bash_values(option);
    return;
  }
  words->flags += " " + long_name(option);
  if (has_two_spellings(option)) words->flags += " " + dashed_name(option);
  if (*option.short_name) words->flags += " -" + std::string(option.short_name);
}

std::string bash_script() {
  BashWords words;
  for (const OptionText& option : option_table()) add_option(option, &words);
  std::string script = kBashCompletion;
  script = replaced(std::move(script), "@NAMES@", words.names);
  script = replaced(std::move(script), "@DASHED@", words.dashed);
  script = replaced(std::move(script), "@FLAGS@", words.flags);
  script = replaced(std::move(script), "@VALUES@\n", words.values);
  return replaced(std::move(script), "@OVERRIDES@", overrides());
}

// --- zsh

// The help up to its first full stop, semicolon or default, as the explanation of an _arguments spec.
std::string explanation(std::string_view help) {
  for (const char* end : {". ", "; ", " ["}) help = help.substr(0, help.find(end));
  std::string escaped;
  for (char c : help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return escaped;
}

std::string zsh_action(const OptionText& option) {
  if (const std::string choices = choices_of(option); !choices.empty()) return "(" + choices + ")";
  if (std::string_view(option.placeholder) == "DIR") return "_files -/";
  return std::string_view(option.placeholder).starts_with("HOST") ? "_hosts" : " ";
}

std::string zsh_specs(const OptionText& option) {
  std::string message = replaced(option.placeholder, ":", "\\:");
  const std::string value = option.is_flag ? "" : ":" + message + ":" + zsh_action(option);
  const std::string text = "[" + explanation(option.help) + "]" + value + "' \\";
  const std::string equals = option.is_flag ? "" : "=";
  std::string specs = "    '" + long_name(option) + equals + text + "\n";
  if (has_two_spellings(option)) specs += "    '!" + dashed_name(option) + equals + text + "\n";
  if (*option.short_name) {
    specs += "    '-" + std::string(option.short_name) + (option.is_flag ? "" : "+") + text + "\n";
  }
  return specs;
}

std::string zsh_script() {
  std::string specs;
  for (const OptionText& option : option_table()) specs += zsh_specs(option);
  const std::string script = replaced(kZshCompletion, "@SPECS@\n", specs);
  return replaced(script, "@OVERRIDES@", overrides());
}

// --- tcsh, which cannot tell where dtrun's options end: names, values, and files

std::string tcsh_script() {
  std::string names = "help version", values;
  for (const OptionText& option : option_table()) {
    const std::string choices = choices_of(option);
    for (const std::string& name : std::set<std::string>{long_name(option), dashed_name(option)}) {
      names += " " + name.substr(2);
      if (!choices.empty()) values += " 'n/" + name + "/(" + choices + ")/'";
    }
  }
  return "complete dtrun 'c/--/(" + names + ")/'" + values + " 'p/*/f/'\n";
}

}  // namespace

Result<std::string> completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "tcsh") return tcsh_script();
  return Status(kExitUsage,
                "--print_completion=" + shell +
                    ": expected bash, zsh or tcsh; others complete file names, as for any program");
}

}  // namespace dtrun::cmd
