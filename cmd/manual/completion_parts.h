// The common part of the shells' scripts: words from the tables, and places in a script that are filled in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cmd/options/command.h"
#include "proto/core/text.h"

namespace dtrun::cmd {

std::string bash_script(Commands commands);
std::string zsh_script(Commands commands);
std::string fish_script(Commands commands);
std::string tcsh_script(Commands commands);
std::vector<std::string> names_of(Commands commands);

// "--log_dir", and "--log-dir" if that differs.
std::vector<std::string> long_spellings(const OptionEntry& option);
// Those, and "-r".
std::vector<std::string> spellings(const OptionEntry& option);

// The kind of value that an option takes, beside the words that its placeholder names.
enum class ValueKind { kAny, kFolder, kHost };
ValueKind value_kind(const OptionEntry& option);

// True if the argument is a run that was detached from here: only the shell can list these, by this line of
// sh.
bool takes_detached_run(const Command& command);
inline constexpr char kListRuns[] =
    R"sh(cd "${XDG_STATE_HOME:-$HOME/.local/state}/dtrun/launches" 2>/dev/null && ls | sed -n "s/[.]json\$//p")sh";

// A config's overrides: "train.optim=sgd" for each value if the schema names them, else "train.seed=".
std::vector<std::string> overrides();

// `text` with every `what` replaced.
std::string replaced(std::string text, std::string_view what, const std::string& with);

}  // namespace dtrun::cmd
