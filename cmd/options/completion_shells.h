// The shells' part of completion: scripts whose @WORDS@ completion.cc fills in.
#pragma once

namespace dtrun::cmd {

inline constexpr char kBashCompletion[] =
    R"bash(# Completes dtrun's command line in bash. To load it: source <(dtrun --print_completion bash)
# To keep it: dtrun --print_completion bash > ~/.local/share/bash-completion/completions/dtrun

# The values of option $1 that begin with $2.
_dtrun_values() {
  case $1 in
@VALUES@
  esac
}

# One candidate a line for the last of the arguments, which follow $1, the index of the program among them
# (-1: there is none yet), and $2, the option whose value is due.
_dtrun_candidates() {
  local program=$1 option=$2
  shift 2
  local words=("$@") current=${!#} names
  if ((program >= 0 && program < $# - 1)); then
    case ${words[program]} in
      *.json) compgen -W '@OVERRIDES@' -- "$current" ;;
      *) [[ $current != -* ]] || compgen -W "$(_dtrun_of_subcommand "${words[program]}")" -- "$current" ;;
    esac
  elif [[ -n $option ]]; then
    _dtrun_values "$option" "$current"
  elif ((program < 0)) && [[ $current == --*=* ]]; then
    _dtrun_values "${current%%=*}" "${current#*=}" | sed "s|^|${current%%=*}=|"
  elif ((program < 0)) && [[ $current == -* ]]; then
    names=$(compgen -W '@NAMES@' -- "$current")
    printf '%s\n' "${names:-$(compgen -W '@DASHED@' -- "$current")}"
  else
    (($# > 1)) || compgen -W 'store status' -- "$current"
    ((program < 0)) || compgen -c -- "$current"
    compgen -f -- "$current"
  fi
}

# The options of dtrun store and dtrun status, as their help names them.
_dtrun_of_subcommand() {
  case $1 in
    store | status) dtrun "$1" --help 2>/dev/null | grep -oE -- '--[a-z_]+' ;;
  esac
}

_dtrun() {
  local flags='@FLAGS@ '
  local words=() at=() i last word option='' program=-1
  # readline cuts words at = and : (COMP_WORDBREAKS); here they are whole again.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} =~ ^[=:]+$ || ${COMP_WORDS[i - 1]} =~ ^[=:]+$ ]]; then
      words[${#words[@]} - 1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
      at+=("$i")
    fi
  done
  for ((i = 0; i < ${#words[@]} - 1; i++)); do
    word=${words[i]}
    if [[ -n $option ]]; then
      option=''
    elif [[ $word == -- ]]; then
      program=$((i + 1))
      break
    elif [[ $word != -?* ]]; then
      program=$i
      break
    elif [[ $word != --*=* && $word != -[a-z]?* && $flags != *" $word"* ]]; then
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
  done < <(_dtrun_candidates "$program" "$option" "${words[@]}")

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

inline constexpr char kZshCompletion[] =
    R"zsh(#compdef dtrun
# Completes dtrun's command line in zsh. To keep it: dtrun --print_completion zsh > DIR/_dtrun, where DIR is in
# $fpath before compinit runs. To try it: source <(dtrun --print_completion zsh)

_dtrun_program() {
  ((CURRENT > 2)) || compadd -- store status
  _files
  ((! ${words[(I)--|--no[-_]python]})) || _command_names -e
}

# The program is $words[1] here.
_dtrun_arguments() {
  case $words[1] in
    *.json) compadd -S '' -- @OVERRIDES@ ;;
    store | status) compadd -- ${(f)"$(dtrun $words[1] --help 2>/dev/null | grep -oE -- '--[a-z_]+')"} ;;
    *) _normal ;;
  esac
}

_dtrun() {
  _arguments -S \
    '(-)'{-h,--help}'[Print the options and exit]' \
    '(-)--version[Print the version and exit]' \
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

}  // namespace dtrun::cmd
