#include "cmd/completion.h"

#include "cmd/option_table.h"
#include "proto/exit_codes.h"

namespace dtrun::cmd {
namespace {

// Both spellings, so that whoever types a dash or an underscore goes on.
std::string names(const std::string& dashes) {
  std::string text = dashes + "help " + dashes + "version " + dashes + "print_completion";
  for (const OptionText& option : option_table()) {
    const std::string name = option.name;
    text += " " + dashes + name;
    if (with_dashes(name) != name) text += " " + dashes + with_dashes(name);
  }
  return text;
}

std::string bash() {
  return "_dtrun() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} first=\n"
         "  [[ $COMP_CWORD == 1 ]] && first=\"store status\"\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         names("--") +
         "\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -W \"$first\" -- \"$word\") $(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _dtrun dtrun\n";
}

// As a file _dtrun in $fpath, or read with `source`.
std::string zsh() {
  return "#compdef dtrun\n"
         "_dtrun() {\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    compadd -- " +
         names("--") +
         "\n"
         "  else\n"
         "    (( CURRENT == 2 )) && compadd store status\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $funcstack[1] == _dtrun ]]; then _dtrun \"$@\"; else compdef _dtrun dtrun; fi\n";
}

std::string tcsh() { return "complete dtrun 'c/--/(" + names("") + ")/' 'n/-*/f/' 'p/*/f/'\n"; }

}  // namespace

Result<std::string> completion_script(const std::string& shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "tcsh") return tcsh();
  return Status(kExitUsage, "--print_completion=" + shell + ": expected bash, zsh or tcsh");
}

}  // namespace dtrun::cmd
