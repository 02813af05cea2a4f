#include "cmd/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cmd/help.h"
#include "cmd/option_table.h"
#include "proto/exit_codes.h"
#include "proto/nearest.h"

namespace dtrun::cmd {
namespace {

std::string cli_names(const OptionText& text) {
  const std::string name = text.name;
  std::string names = *text.short_name ? "-" + std::string(text.short_name) + "," : std::string();
  names += "--" + name;
  if (with_dashes(name) != name) names += ",--" + with_dashes(name);
  return names;
}

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>("", "dtrun");
  for (const OptionText& text : option_table()) {
    CLI::Option* option = text.is_flag
                              ? app->add_flag(cli_names(text), text.help)
                              : app->add_option(cli_names(text), text.help)->type_name(text.placeholder);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  app->set_help_flag("-h,--help", "");
  app->set_version_flag("--version", "dtrun " DTRUN_VERSION);
  return app;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names{"--help", "--version"};
  for (const OptionText& text : option_table()) names.push_back("--" + std::string(text.name));
  return names;
}

// The option that an argument such as "--nnodes=2", "-m" or "-r3" names; null if there is none.
CLI::Option* option_of(const CLI::App& app, const std::string& argument) {
  const bool short_name = argument[1] != '-';
  const std::string name = short_name ? argument.substr(0, 2) : argument.substr(0, argument.find('='));
  CLI::Option* option = const_cast<CLI::App&>(app).get_option_no_throw(name);
  const bool takes_value = option != nullptr && option->get_items_expected_max() > 0;
  return short_name && argument.size() > 2 && !takes_value ? nullptr : option;
}

bool brings_value(const std::string& argument) {
  return argument[1] == '-' ? argument.find('=') != std::string::npos : argument.size() > 2;
}

Status unknown_option(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  const std::string nearest = nearest_name(name, all_names());
  return Status(kExitUsage, "unknown option " + name +
                                (nearest.empty() ? "" : ", did you mean " + nearest + "?") +
                                " (dtrun --help lists all)");
}

// dtrun's own arguments end before the first one that is neither an option nor an option's value: everything
// from there on belongs to the program, as with torchrun.
Result<std::size_t> end_of_own_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::size_t i = 0;
  while (i < arguments.size()) {
    const std::string& argument = arguments[i];
    if (argument == "--" || argument.size() < 2 || argument[0] != '-') break;
    const CLI::Option* option = option_of(app, argument);
    if (option == nullptr) return unknown_option(argument);
    const bool takes_next = option->get_items_expected_max() > 0 && !brings_value(argument);
    if (takes_next && (i + 1 == arguments.size() || arguments[i + 1] == "--")) {
      return Status(kExitUsage, argument + " needs a value (" + option->get_type_name() + ")");
    }
    i += takes_next ? 2 : 1;
  }
  return i;
}

// Values as arguments of their own, because CLI11 takes "--name=" for a name without a value; last first, as
// CLI11 wants them.
std::vector<std::string> for_cli11(const CLI::App& app, const std::vector<std::string>& arguments,
                                   std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& argument = arguments[i];
    const CLI::Option* option =
        argument.size() > 1 && argument[0] == '-' ? option_of(app, argument) : nullptr;
    const std::size_t equals = argument.find('=');
    if (option != nullptr && option->get_items_expected_max() > 0 && argument.starts_with("--") &&
        equals != std::string::npos) {
      out.push_back(argument.substr(0, equals));
      out.push_back(argument.substr(equals + 1));
    } else {
      out.push_back(argument);
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// A flag's value as "true" or "false"; other options' as given.
Result<Given> checked(const OptionText& text, const Given& given) {
  if (!text.is_flag) return given;
  for (const char* yes : {"1", "true", "True"}) {
    if (given.value == yes) return Given{"true", given.source};
  }
  for (const char* no : {"0", "false", "False"}) {
    if (given.value == no) return Given{"false", given.source};
  }
  return Status(kExitUsage, given.source + "=" + given.value + ": expected 1 or 0");
}

std::optional<Given> find_given(const OptionText& text, const CLI::App& app, const Environment& environment) {
  const std::string flag = "--" + std::string(text.name);
  const CLI::Option* option = app.get_option(flag);
  if (option->count() > 0) return Given{option->results().back(), flag};
  for (const char* prefix : {"DTRUN_", "PET_"}) {
    const std::string variable = prefix + in_capitals(text.name);
    const char* value = environment(variable.c_str());
    if (value != nullptr && *value != '\0') return Given{value, variable};
  }
  return std::nullopt;
}

}  // namespace

Result<ParsedCommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                             const Environment& environment, int columns) {
  const std::unique_ptr<CLI::App> app = make_app();
  Result<std::size_t> end = end_of_own_arguments(*app, arguments);
  if (!end.ok()) return end.status();

  ParsedCommandLine parsed;
  try {
    app->parse(for_cli11(*app, arguments, end.value()));
  } catch (const CLI::CallForHelp&) {
    parsed.answer = TextAnswer{help_text(columns)};
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.answer = TextAnswer{std::string(version.what()) + "\n"};
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Status(kExitUsage, std::string(error.what()) + " (dtrun --help lists all options)");
  }

  for (const OptionText& text : option_table()) {
    const std::optional<Given> given = find_given(text, *app, environment);
    if (!given) continue;
    Result<Given> value = checked(text, *given);
    if (!value.ok()) return value.status();
    parsed.options.values[text.name] = value.value();
  }

  std::size_t program = end.value();
  if (program < arguments.size() && arguments[program] == "--") {
    parsed.options.program_is_verbatim = true;
    ++program;
  }
  parsed.options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return parsed;
}

}  // namespace dtrun::cmd
