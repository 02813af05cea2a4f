#include "cmd/manual/completion_parts.h"
#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"

namespace dtrun::cmd {
namespace {

constexpr char kBashScript[] =
    R"bash(# Completes dtrun's command line in bash. To load it: source <(dtrun completion bash)
# To keep it: dtrun completion bash > ~/.local/share/bash-completion/completions/dtrun

# In these $1 is the subcommand, nothing for the launcher.

# The options that begin with $2, in one spelling, and in the other once that is begun.
_dtrun_names() {
  local names='' dashed=''
  case $1 in
@NAMES@
  esac
  names=$(compgen -W "$names" -- "$2")
  printf '%s\n' "${names:-$(compgen -W "$dashed" -- "$2")}"
}

# Whether $2 is an option that takes no value, or the beginning of one.
_dtrun_is_flag() {
  local flags=''
  case $1 in
@FLAGS@
  esac
  [[ " $flags" == *" $2"* ]]
}

# The values of option $2, or of the subcommand's argument if that is empty, that begin with $3.
_dtrun_values() {
  case "$1 $2" in
@VALUES@
  esac
}

# One candidate a line for the last of the arguments, which follow $1, $2, the index of the program among them
# (-1: there is none yet), and $3, the option whose value is due.
_dtrun_candidates() {
  local command=$1 program=$2 option=$3
  shift 3
  local words=("$@") current=${!#}
  if ((program >= 0 && program < $# - 1)); then
    [[ ${words[program]} != *.json ]] || compgen -W '@OVERRIDES@' -- "$current"
  elif [[ -n $option ]]; then
    _dtrun_values "$command" "$option" "$current"
  elif ((program < 0)) && [[ $current == --*=* ]]; then
    _dtrun_values "$command" "${current%%=*}" "${current#*=}" | sed "s|^|${current%%=*}=|"
  elif ((program < 0)) && [[ $current == -* ]]; then
    _dtrun_names "$command" "$current"
  elif [[ -n $command ]]; then
    _dtrun_values "$command" '' "$current"
  else
    (($# > 1)) || compgen -W '@COMMANDS@' -- "$current"
    ((program < 0)) || compgen -c -- "$current"
    compgen -f -- "$current"
  fi
}

_dtrun() {
  local words=() at=() i last word option='' command='' program=-1
  # readline cuts words at = and : (COMP_WORDBREAKS); here they are whole again.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} =~ ^[=:]+$ || ${COMP_WORDS[i - 1]} =~ ^[=:]+$ ]]; then
      words[${#words[@]} - 1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
      at+=("$i")
    fi
  done
  if ((${#words[@]} > 1)) && [[ ' @COMMANDS@ ' == *" ${words[0]} "* ]]; then
    command=${words[0]}
  fi
  for ((i = 0; i < ${#words[@]} - 1; i++)); do
    word=${words[i]}
    if [[ -n $option ]]; then
      option=''
    elif [[ $word == -- && -z $command ]]; then
      program=$((i + 1))
      break
    elif [[ $word != -?* ]]; then
      [[ -z $command ]] || continue
      program=$i
      break
    elif [[ $word != --*=* && $word != -[a-z]?* ]] && ! _dtrun_is_flag "$command" "$word"; then
      option=$word
    fi
  done

  COMPREPLY=()
  # Only what follows the last = or : is replaced.
  last=${COMP_WORDS[COMP_CWORD]}
  [[ ! $last =~ ^[=:]+$ ]] || last=''
  local current=${words[${#words[@]} - 1]}
  local kept=${current%"$last"}
  while IFS= read -r word; do
    [[ -z $word ]] || COMPREPLY+=("${word#"$kept"}")
  done < <(_dtrun_candidates "$command" "$program" "$option" "${words[@]}")

  if ((${#COMPREPLY[@]} == 0 && program >= 0 && program < ${#words[@]} - 1)); then
    if declare -F _command_offset >/dev/null; then
      _command_offset "${at[program]}"
    else
      compopt -o default 2>/dev/null
    fi
  elif [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  elif [[ -n $option || $current != -* ]]; then
    compopt -o filenames 2>/dev/null
  fi
}

complete -F _dtrun dtrun
)bash";

struct Cases {
  std::string names, flags, values;  // of the three functions
};

// "' --tee' | ' -t'": the patterns for an option of a subcommand.
std::string patterns(const std::string& command, const OptionEntry& option) {
  std::vector<std::string> all;
  for (const std::string& spelling : spellings(option)) all.push_back("'" + command + " " + spelling + "'");
  return join(all, " | ");
}

std::string word_list(const std::vector<std::string>& words) {
  return "compgen -W '" + join(words, " ") + "' -- \"$3\"";
}

std::string values_of(const OptionEntry& option, Commands commands) {
  if (value_kind(option) == ValueKind::kFolder) return "compgen -d -- \"$3\"";
  if (value_kind(option) == ValueKind::kHost) return "compgen -A hostname -- \"$3\"";
  const std::vector<std::string> words = choices(option.placeholder, commands);
  return words.empty() ? "" : word_list(words);
}

void add_options(const std::string& command, std::span<const OptionEntry> options, Commands commands,
                 Cases* cases) {
  std::vector<std::string> names, dashed, flags;
  for (const OptionEntry& option : options) {
    const std::vector<std::string> both = long_spellings(option);
    names.push_back(both[0]);
    if (both.size() > 1) dashed.push_back(both[1]);
    if (*option.short_name) names.push_back("-" + std::string(option.short_name));
    if (option.is_flag()) flags.push_back(join(spellings(option), " "));
    const std::string values = values_of(option, commands);
    if (!values.empty()) cases->values += "    " + patterns(command, option) + ") " + values + " ;;\n";
  }
  cases->names +=
      "    '" + command + "') names='" + join(names, " ") + "' dashed='" + join(dashed, " ") + "' ;;\n";
  cases->flags += "    '" + command + "') flags='" + join(flags, " ") + "' ;;\n";
}

}  // namespace

std::string bash_script(Commands commands) {
  Cases cases;
  add_options("", kOptions, commands, &cases);
  for (const Command* command : commands) {
    add_options(command->name, command->options, commands, &cases);
    if (!command->takes_argument()) continue;
    const std::string words = takes_detached_run(*command)
                                  ? "compgen -W \"$(" + std::string(kListRuns) + ")\" -- \"$3\""
                                  : word_list(choices(command->argument, commands));
    cases.values += "    '" + std::string(command->name) + " ') " + words + " ;;\n";
  }
  std::string script = kBashScript;
  script = replaced(std::move(script), "@NAMES@\n", cases.names);
  script = replaced(std::move(script), "@FLAGS@\n", cases.flags);
  script = replaced(std::move(script), "@VALUES@\n", cases.values);
  script = replaced(std::move(script), "@COMMANDS@", join(names_of(commands), " "));
  return replaced(std::move(script), "@OVERRIDES@", join(overrides(), " "));
}

}  // namespace dtrun::cmd
