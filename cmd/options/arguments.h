// The words of a command line: which are dtrun's own, what each says, and where the program begins. One set
// of manners for the launcher and its subcommands: both spellings, abbreviations, "--name=value", the nearest
// name of a mistyped one. What the values mean is their readers'.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// The long names that may be abbreviated, each in one spelling.
struct LongNames {
  std::vector<std::string> all;
  std::vector<std::string> first;  // what one of these alone begins with is that one, whatever `all` has
  std::string help;                // where a user finds them, e.g. "dtrun --help"
};

struct OwnArguments {
  std::vector<std::string> words;  // as CLI11 wants them: whole names, values apart, last first
  std::size_t count = 0;           // of arguments
};

// dtrun's own arguments end before the first one that is neither an option nor an option's value: everything
// from there on belongs to the program, as with torchrun. A failure has EX_USAGE.
Result<OwnArguments> own_arguments(const CLI::App& app, const LongNames& names,
                                   const std::vector<std::string>& arguments);

// A flag's value, true or false, if `text` is one.
std::optional<bool> flag_value(const std::string& text);

}  // namespace dtrun::cmd
