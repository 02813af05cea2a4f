#include "cmd/manual/completion_parts.h"
#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"

namespace dtrun::cmd {
namespace {

constexpr char kFishScript[] =
    R"fish(# Completes dtrun's command line in fish. To try it: dtrun completion fish | source
# To keep it: dtrun completion fish > ~/.config/fish/completions/dtrun.fish

# What stands before the cursor: "nothing", "options" of the launcher, a "config", another "program", or the name of a
# subcommand.
function __dtrun_place
    set -l words (commandline -opc)
    set -e words[1]
    if not set -q words[1]
        echo nothing
        return
    end
    if contains -- $words[1] @COMMANDS@
        echo $words[1]
        return
    end
    set -l is_value no
    for word in $words
        if test $is_value = yes
            set is_value no
        else if string match -q -- '--' $word
            echo program
            return
        else if string match -qr -- '^(--.*=.*|-[a-z].+)$' $word
            continue
        else if string match -q -- '-?*' $word
            contains -- $word @FLAGS@
            or set is_value yes
        else
            string match -q -- '*.json' $word
            and echo config
            or echo program
            return
        end
    end
    echo options
end

function __dtrun_at
    contains -- (__dtrun_place) $argv
end

# The spelling with dashes is offered once it is begun.
function __dtrun_dashed
    string match -qr -- '^--[a-z]+-' (commandline -ct) (commandline -opc)[-1]
end

complete -c dtrun -n '__dtrun_at config @COMMANDS@' -f
complete -c dtrun -n '__dtrun_at config' -a '@OVERRIDES@'
complete -c dtrun -n '__dtrun_at program' -a '(__fish_complete_command)'
)fish";

std::string quoted_text(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string value_of(const OptionEntry& option, Commands commands) {
  if (option.is_flag()) return "";
  if (value_kind(option) == ValueKind::kFolder) return " -x -a '(__fish_complete_directories)'";
  if (value_kind(option) == ValueKind::kHost) return " -x -a '(__fish_print_hostnames)'";
  const std::vector<std::string> words = choices(option.placeholder, commands);
  return words.empty() ? " -x" : " -x -a '" + join(words, " ") + "'";
}

std::string lines_of(const OptionEntry& option, const std::string& places, Commands commands) {
  const std::string rest = value_of(option, commands) + " -d " + quoted_text(first_clause(option)) + "\n";
  std::string lines, condition = "__dtrun_at " + places;
  for (const std::string& name : long_spellings(option)) {
    lines += "complete -c dtrun -n '" + condition + "' -l " + name.substr(2);
    if (*option.short_name) lines += " -s " + std::string(option.short_name);
    lines += rest;
    condition += "; and __dtrun_dashed";
  }
  return lines;
}

std::string lines_of(const Command& command, Commands commands) {
  const std::string name = command.name;
  std::string lines =
      "complete -c dtrun -n '__dtrun_at nothing' -a " + name + " -d " + quoted_text(command.summary) + "\n";
  for (const OptionEntry& option : command.options) lines += lines_of(option, name, commands);
  if (takes_detached_run(command))
    lines += "complete -c dtrun -n '__dtrun_at " + name + "' -a " +
             quoted_text("(sh -c " + quoted_text(kListRuns) + ")") + "\n";
  else if (command.takes_argument())
    lines += "complete -c dtrun -n '__dtrun_at " + name + "' -a '" +
             join(choices(command.argument, commands), " ") + "'\n";
  return lines;
}

}  // namespace

std::string fish_script(Commands commands) {
  std::vector<std::string> flags;
  std::string lines;
  for (const OptionEntry& option : kOptions) {
    lines += lines_of(option, "nothing options", commands);
    if (!option.is_flag()) continue;
    for (const std::string& name : spellings(option)) flags.push_back(name);
  }
  for (const Command* command : commands) lines += lines_of(*command, commands);
  std::string script = kFishScript;
  script = replaced(std::move(script), "@COMMANDS@", join(names_of(commands), " "));
  script = replaced(std::move(script), "@FLAGS@", join(flags, " "));
  return replaced(std::move(script), "@OVERRIDES@", join(overrides(), " ")) + lines;
}

}  // namespace dtrun::cmd
