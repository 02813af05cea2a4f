// What may come next on dtrun's command line, from the tables of options and subcommands and from the
// config's schema; and the scripts with which a shell asks for it at each TAB.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cmd/options/command.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The first argument of a dtrun that a shell asks; the others are the words so far, the last one begun.
inline constexpr char kCompleteWord[] = "__complete";

struct CompletionItem {
  std::string word;
  std::string text = {};  // for people; empty: the word says it
};

struct Completion {
  std::vector<CompletionItem> items = {};
  // What the shell knows better, by bash's names: "file", "directory", "hostname", "command".
  std::vector<std::string> actions = {};
  // Index of the word with which another program's command line begins, which the shell completes alone.
  std::optional<std::size_t> program = {};
};

// What the last of `words` may become. `runs`: the names of the runs that were detached from here.
Completion complete(const std::vector<std::string>& words, Commands commands,
                    const std::function<std::vector<std::string>()>& runs);

// What the scripts read: a line with the actions, or "program N"; then a candidate a line, with a tab before
// its text.
std::string as_lines(const Completion& completion);

// For bash, zsh, fish or tcsh. EX_USAGE for a shell that there is no script for.
Result<std::string> completion_script(const std::string& shell, Commands commands);

// tcsh has no way to ask, so its script has all words.
std::string tcsh_script(Commands commands);

// "--log_dir", and "--log-dir" if that differs.
std::vector<std::string> long_spellings(const OptionEntry& option);

}  // namespace dtrun::cmd
