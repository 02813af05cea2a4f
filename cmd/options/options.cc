#include "cmd/options/options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cmd/options/arguments.h"
#include "cmd/options/completion.h"
#include "cmd/options/help.h"
#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"

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

// What torchrun would have taken for one of its options is that option, whatever dtrun has besides.
LongNames long_names() {
  LongNames names{{"--help", "--version"}, {"--help"}, "dtrun --help"};
  for (const OptionText& text : option_table()) {
    names.all.push_back("--" + std::string(text.name));
    if (is_torchruns(text.name)) names.first.push_back(names.all.back());
  }
  return names;
}

// A flag's value as "true" or "false"; other options' as given.
Result<Given> checked(const OptionText& text, const Given& given) {
  if (!text.is_flag) return given;
  const std::optional<bool> on = flag_value(given.value);
  if (!on) return Status(kExitUsage, given.source + "=" + given.value + ": expected 1 or 0");
  return Given{*on ? "true" : "false", given.source};
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
  Result<OwnArguments> own = own_arguments(*app, long_names(), arguments);
  if (!own.ok()) return own.status();

  ParsedCommandLine parsed;
  try {
    app->parse(own.value().words);
  } catch (const CLI::CallForHelp&) {
    parsed.answer = TextAnswer{help_text(columns)};
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.answer = TextAnswer{std::string(version.what()) + "\n"};
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Status(kExitUsage, std::string(error.what()) + " (dtrun --help lists all options)");
  }

  if (const CLI::Option* shell = app->get_option("--print_completion"); shell->count() > 0) {
    Result<std::string> script = completion_script(shell->results().back());
    if (!script.ok()) return script.status();
    parsed.answer = TextAnswer{script.value()};
    return parsed;
  }
  for (const OptionText& text : option_table()) {
    const std::optional<Given> given = find_given(text, *app, environment);
    if (!given) continue;
    Result<Given> value = checked(text, *given);
    if (!value.ok()) return value.status();
    parsed.options.values[text.name] = value.value();
  }

  std::size_t program = own.value().count;
  if (program < arguments.size() && arguments[program] == "--") {
    parsed.options.program_is_verbatim = true;
    ++program;
  }
  parsed.options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return parsed;
}

}  // namespace dtrun::cmd
