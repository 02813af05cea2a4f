#include "cmd/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cmd/completion.h"
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

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

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

// Every long name; torchrun's alone if `torchruns`.
std::vector<std::string> long_names(bool torchruns = false) {
  std::vector<std::string> names{"--help"};
  if (!torchruns) names.push_back("--version");
  for (const OptionText& text : option_table()) {
    if (!torchruns || is_torchruns(text.name)) names.push_back("--" + std::string(text.name));
  }
  return names;
}

// Those of `names` that `beginning` begins, in either spelling.
std::vector<std::string> begun_by(const std::string& beginning, std::vector<std::string> names) {
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(beginning) && !("--" + with_dashes(name.substr(2))).starts_with(beginning);
  });
  return names;
}

Status unknown_option(const std::string& name) {
  const std::string nearest = nearest_name(name, long_names());
  return Status(kExitUsage, "unknown option " + name +
                                (nearest.empty() ? "" : ", did you mean " + nearest + "?") +
                                " (dtrun --help lists all)");
}

// The whole of a long name that may be abbreviated, as in Python's argparse. What torchrun would have taken
// for one of its options is that option, whatever dtrun has besides.
Result<std::string> whole_name(const CLI::App& app, const std::string& name) {
  if (app.get_option_no_throw(name) != nullptr) return name;
  const auto torchruns = begun_by(name, long_names(true)), all = begun_by(name, long_names());
  if (torchruns.size() == 1) return torchruns.front();
  if (all.empty() || name == "--") return unknown_option(name);
  if (all.size() == 1) return all.front();
  std::string candidates;
  for (const std::string& candidate : all) candidates += (candidates.empty() ? "" : ", ") + candidate;
  return Status(kExitUsage, name + " is the beginning of several options: " + candidates);
}

// What an argument such as "--nnodes=2", "-m" or "-r3" says.
struct Word {
  const CLI::Option* option = nullptr;
  std::string name;  // as CLI11 knows it
  std::optional<std::string> value;
};

Result<Word> short_word(const CLI::App& app, const std::string& argument) {
  Word word{app.get_option_no_throw(argument.substr(0, 2)), argument.substr(0, 2), std::nullopt};
  if (argument.size() > 2) word.value = argument.substr(2);
  if (word.option == nullptr || (word.value && !takes_value(*word.option))) return unknown_option(argument);
  return word;
}

Result<Word> long_word(const CLI::App& app, const std::string& argument) {
  const std::size_t equals = argument.find('=');
  Result<std::string> name = whole_name(app, argument.substr(0, equals));
  if (!name.ok()) return name.status();
  Word word{app.get_option_no_throw(name.value()), name.value(), std::nullopt};
  if (equals != std::string::npos) word.value = argument.substr(equals + 1);
  return word;
}

struct OwnArguments {
  std::vector<std::string> words;  // as CLI11 wants them: whole names, values apart, last first
  std::size_t count = 0;           // of arguments
};

// dtrun's own arguments end before the first one that is neither an option nor an option's value: everything
// from there on belongs to the program, as with torchrun.
Result<OwnArguments> own_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  OwnArguments own;
  while (own.count < arguments.size()) {
    const std::string& argument = arguments[own.count];
    if (argument == "--" || argument.size() < 2 || argument[0] != '-') break;
    Result<Word> parsed = argument[1] == '-' ? long_word(app, argument) : short_word(app, argument);
    if (!parsed.ok()) return parsed.status();
    Word word = std::move(parsed).value();
    ++own.count;
    if (takes_value(*word.option) && !word.value) {
      if (own.count == arguments.size() || arguments[own.count] == "--") {
        return Status(kExitUsage, argument + " needs a value (" + word.option->get_type_name() + ")");
      }
      word.value = arguments[own.count++];
    }
    const bool apart = takes_value(*word.option);  // CLI11 takes "--name=" for a name without a value
    own.words.push_back(word.value && !apart ? word.name + "=" + *word.value : word.name);
    if (apart) own.words.push_back(*word.value);
  }
  std::reverse(own.words.begin(), own.words.end());
  return own;
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
  Result<OwnArguments> own = own_arguments(*app, arguments);
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
