#include "cmd/manual/completion_parts.h"
#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"

namespace dtrun::cmd {
namespace {

constexpr char kZshScript[] =
    R"zsh(#compdef dtrun
# Completes dtrun's command line in zsh. To keep it: dtrun completion zsh > DIR/_dtrun, where DIR is in $fpath before
# compinit runs. To try it: source <(dtrun completion zsh)

_dtrun_program() {
  local -a commands=(
@COMMANDS@
  )
  ((CURRENT > 2)) || _describe command commands
  _files
  ((! ${words[(I)--|--no[-_]python]})) || _command_names -e
}

# The program is $words[1] here.
_dtrun_arguments() {
  case $words[1] in
    *.json) compadd -S '' -- @OVERRIDES@ ;;
    *) _normal ;;
  esac
}

_dtrun_runs() {
  compadd -- $(@RUNS@)
}

# The subcommand is $words[1] here.
_dtrun_of_command() {
  case $words[1] in
@OF_COMMANDS@
  esac
}

_dtrun() {
  if ((CURRENT > 2)) && [[ $words[2] == (@NAMES@) ]]; then
    shift words
    ((CURRENT--))
    _dtrun_of_command
    return
  fi
  _arguments -S \
@SPECS@
    '(-)1:program:_dtrun_program' \
    '*::argument:_dtrun_arguments'
}

if [[ $funcstack[1] == _dtrun ]]; then
  _dtrun "$@"
else
  compdef _dtrun dtrun
fi
)zsh";

// Text inside a spec between apostrophes.
std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return result;
}

std::string action(const OptionEntry& option, Commands commands) {
  if (value_kind(option) == ValueKind::kFolder) return "_files -/";
  if (value_kind(option) == ValueKind::kHost) return "_hosts";
  const std::vector<std::string> words = choices(option.placeholder, commands);
  return words.empty() ? " " : "(" + join(words, " ") + ")";
}

// The specs of _arguments for an option; the spelling with dashes works but is not offered.
std::string specs_of(const OptionEntry& option, Commands commands) {
  const bool flag = option.is_flag();
  const std::string value = flag ? "" : ":" + escaped(option.placeholder) + ":" + action(option, commands);
  const std::string text = "[" + escaped(first_clause(option)) + "]" + value + "' \\\n";
  std::string specs;
  for (const std::string& name : long_spellings(option)) {
    specs += "    '" + std::string(specs.empty() ? "" : "!") + (option.asks_for_text ? "(-)" : "") + name +
             (flag ? "" : "=") + text;
  }
  if (!*option.short_name) return specs;
  return specs + "    '" + (option.asks_for_text ? "(-)-" : "-") + option.short_name + (flag ? "" : "+") +
         text;
}

std::string specs_of(std::span<const OptionEntry> options, Commands commands) {
  std::string specs;
  for (const OptionEntry& option : options) specs += specs_of(option, commands);
  return specs;
}

std::string of_command(const Command& command, Commands commands) {
  std::string text = "    " + std::string(command.name) + ")\n    _arguments -S \\\n";
  text += specs_of(command.options, commands);
  if (takes_detached_run(command)) return text + "    '1:run:_dtrun_runs' ;;\n";
  const std::string argument = command.takes_argument() ? join(choices(command.argument, commands), " ") : "";
  return text + "    '1:argument:(" + argument + ")' ;;\n";
}

}  // namespace

std::string zsh_script(Commands commands) {
  std::string names, of_commands;
  for (const Command* command : commands) {
    names += "    '" + std::string(command->name) + ":" + escaped(command->summary) + "'\n";
    of_commands += of_command(*command, commands);
  }
  std::string script = kZshScript;
  script = replaced(std::move(script), "@COMMANDS@\n", names);
  script = replaced(std::move(script), "@RUNS@", kListRuns);
  script = replaced(std::move(script), "@OF_COMMANDS@\n", of_commands);
  script = replaced(std::move(script), "@NAMES@", join(names_of(commands), "|"));
  script = replaced(std::move(script), "@SPECS@\n", specs_of(kOptions, commands));
  return replaced(std::move(script), "@OVERRIDES@", join(overrides(), " "));
}

}  // namespace dtrun::cmd
