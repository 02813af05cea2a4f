// The shells' scripts. Each asks dtrun for the candidates (completion.h) and adds what the shell knows
// itself.
#include "cmd/manual/completion.h"
#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

constexpr char kBash[] =
    R"bash(# Completes dtrun's command line in bash. To load it: source <(dtrun completion bash)
# To keep it: dtrun completion bash > ~/.local/share/bash-completion/completions/dtrun

_dtrun() {
  local words=() at=() said=() i last current value kept action word
  # readline cuts words at = and : (COMP_WORDBREAKS); here they are whole again.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} =~ ^[=:]+$ || ${COMP_WORDS[i - 1]} =~ ^[=:]+$ ]]; then
      words[${#words[@]} - 1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
      at+=("$i")
    fi
  done
  # Only what follows the last = or : is replaced.
  last=${COMP_WORDS[COMP_CWORD]}
  [[ ! $last =~ ^[=:]+$ ]] || last=''
  current=${words[${#words[@]} - 1]} value=${current#--*=} kept=${current%"$last"}

  COMPREPLY=()
  mapfile -t said < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${words[@]}" 2>/dev/null)
  if [[ ${said[0]} == program* ]]; then
    if declare -F _command_offset >/dev/null; then
      _command_offset "${at[${said[0]#program }]}"
    else
      compopt -o default 2>/dev/null
    fi
    return
  fi
  for action in ${said[0]}; do
    mapfile -t -O ${#said[@]} said < <(compgen -A "$action" -P "${current%"$value"}" -- "$value")
    compopt -o filenames 2>/dev/null
  done
  for word in "${said[@]:1}"; do
    word=${word%%$'\t'*}
    COMPREPLY+=("${word#"$kept"}")
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}

complete -F _dtrun dtrun
)bash";

constexpr char kZsh[] =
    R"zsh(#compdef dtrun
# Completes dtrun's command line in zsh. To keep it: dtrun completion zsh > DIR/_dtrun, where DIR is in $fpath before
# compinit runs. To try it: source <(dtrun completion zsh)

_dtrun() {
  local -a said found texts
  local line word action
  said=("${(@f)$(${(Q)words[1]/#\~/$HOME} __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  if [[ $said[1] == program* ]]; then
    shift $((${said[1]#program } + 1)) words
    ((CURRENT -= ${said[1]#program } + 1))
    _normal
    return
  fi
  for line in "${(@)said[2,-1]}"; do
    word=${line%%$'\t'*}
    if [[ $word == *= ]]; then
      compadd -S '' -- $word
    else
      found+=($word)
      texts+=("${line/$'\t'/  -- }")
    fi
  done
  compadd -l -d texts -a found
  [[ -z $said[1] ]] || compset -P '--*='
  for action in ${=said[1]}; do
    case $action in
      file) _files ;;
      directory) _files -/ ;;
      hostname) _hosts ;;
      command) _command_names -e ;;
    esac
  done
}

if [[ $funcstack[1] == _dtrun ]]; then
  _dtrun "$@"
else
  compdef _dtrun dtrun
fi
)zsh";

constexpr char kFish[] =
    R"fish(# Completes dtrun's command line in fish. To try it: dtrun completion fish | source
# To keep it: dtrun completion fish > ~/.config/fish/completions/dtrun.fish

function __dtrun_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l said ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if string match -q 'program *' -- $said[1]
        set -l first (math (string replace 'program ' '' -- $said[1]) + 2)
        complete -C (string join ' ' -- (string escape -- $words[$first..-1]) "$current")
        return
    end
    set -l before (string match -r -- '^--[^=]*=' "$current")
    set -l value (string replace -r -- '^--[^=]*=' '' "$current")
    for action in (string split ' ' -- $said[1])
        switch $action
            case file
                __fish_complete_path "$value"
            case directory
                __fish_complete_directories "$value" ''
            case hostname
                __fish_print_hostnames
            case command
                complete -C "$value"
        end
    end | string replace -r '^' -- "$before"
    printf '%s\n' $said[2..-1]
end

complete -c dtrun -f -a '(__dtrun_complete)'
)fish";

}  // namespace

Result<std::string> completion_script(const std::string& shell, Commands commands) {
  if (shell == "bash") return std::string(kBash);
  if (shell == "zsh") return std::string(kZsh);
  if (shell == "fish") return std::string(kFish);
  if (shell == "tcsh") return tcsh_script(commands);
  return Status(kExitUsage,
                "expected bash, zsh, fish or tcsh; others complete file names, as for any program");
}

}  // namespace dtrun::cmd
